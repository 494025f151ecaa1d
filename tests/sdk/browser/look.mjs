// Looks at the live page with Chromium, as a person does, and prints what was seen as one JSON object.
//
//   tests/sdk/run browser look SCENE --url URL [--token TOKEN] [--picture FILE]
//
// It says `ready` on a line of its own when calls may begin.
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';

import { sdkModule } from '../common/sdk.mjs';

const CHROMIUM = process.env.MILEPOST_CHROMIUM ?? '/usr/bin/chromium';
const FLAGS = [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
];
/** How long anything may take on a busy machine. */
const PATIENCE = 60_000;
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

const { positionals: [scene], values: options } = parseArgs({
    allowPositionals: true,
    options: { url: { type: 'string' }, token: { type: 'string' }, picture: { type: 'string' } },
});
if (!existsSync(CHROMIUM)) {
    console.error(`tests/sdk/browser: no ${CHROMIUM}; install it (Debian: apt-get install chromium) or set MILEPOST_CHROMIUM`);
    process.exit(3);
}
let playwright, axe;
try {
    const require = createRequire(sdkModule('look.mjs'));
    playwright = require('playwright-core');
    axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
} catch (error) {
    console.error(`cannot load playwright-core, run tests/sdk/setup first: ${error.message}`);
    process.exit(3);
}

const browser = await playwright.chromium.launch({ executablePath: CHROMIUM, headless: true, args: FLAGS });
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
context.setDefaultTimeout(PATIENCE);
await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(options.url).origin });
const page = await context.newPage();

// What must not be: complaints, what the policy forbids, and requests to anybody else.
const seen = { complaints: [], outside: [], axe: [] };
page.on('console', message => ['error', 'warning'].includes(message.type()) && seen.complaints.push(message.text()));
page.on('pageerror', error => seen.complaints.push(String(error.stack)));
page.on('dialog', dialog => {
    seen.complaints.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
});
context.on('request', request => {
    const url = new URL(request.url());
    if (url.protocol !== 'data:' && url.origin !== new URL(options.url).origin) seen.outside.push(request.url());
});
await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', event => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
});

const state = () => page.locator('#state').textContent();
const live = () => page.locator('#state[data-is=live]').waitFor();
const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
/** Rows of calls that are shown. */
const rows = table => page.locator(`#${table} tbody tr:not([hidden])`);

/** Holds what is on the screen against the rules of WCAG 2 A and AA: light, light and narrow, dark. */
async function expectAccessible(what) {
    await page.evaluate(axe);
    for (const colorScheme of ['light', 'dark'])
        for (const width of colorScheme === 'light' ? [1280, 320] : [1280]) {
            await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
            await page.setViewportSize({ width, height: 800 });
            // Two frames: colours and sizes are as they will be.
            await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
            const { violations } = await page.evaluate(rules => globalThis.axe.run(document, { runOnly: { type: 'tag', values: rules } }), RULES);
            for (const { id, nodes } of violations)
                seen.axe.push(`${what}, ${colorScheme}, ${width}: ${id}: ${nodes.map(node => `${node.html} ${node.failureSummary}`).join('\n')}`);
            const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
            if (over > 0) seen.axe.push(`${what}, ${colorScheme}: ${over} pixels too wide for ${width}`);
        }
    await page.emulateMedia({ colorScheme: null, reducedMotion: null });
    await page.setViewportSize({ width: 1280, height: 800 });
}

const clipboard = () => page.evaluate(() => navigator.clipboard.readText());

/** Presses Tab until a button of that name has the focus. */
async function tabTo(name) {
    for (let presses = 1; presses < 200; presses++) {
        await page.keyboard.press('Tab');
        if ((await focused()) === name) return presses;
    }
    throw new Error(`no Tab leads to ${name}`);
}

/** Ended calls are found and opened by keys; a link and a transcript lead out of the page. */
async function keysAndLinks() {
    await page.keyboard.press('/');
    seen.searches = await page.evaluate(() => document.activeElement.id);
    await page.keyboard.type('echo result');
    seen.searched = await rows('past').locator('.link').allTextContents();
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    const first = await focused();
    await page.keyboard.press('j');
    seen.moved = first !== (await focused());
    await page.keyboard.press('k');
    seen.returned = first === (await focused());
    await page.keyboard.press('Enter');
    await page.locator('#messages > .card').first().waitFor();
    seen.count = await page.locator('#messages-count').textContent();
    await page.getByRole('button', { name: 'Copy link' }).click();
    const link = await clipboard();
    seen.linked = link === page.url();
    await page.getByRole('button', { name: 'Copy transcript' }).click();
    await page.getByRole('button', { name: 'Copied' }).first().waitFor();
    seen.transcript = await clipboard();
    const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save transcript' }).click()]);
    seen.saved = saved.suggestedFilename();
    seen.same = readFileSync(await saved.path(), 'utf8') === seen.transcript;
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => location.hash === '');
    const other = await context.newPage();
    await other.goto(link);
    await other.locator('#details[open]').waitFor();
    seen.opened = (await other.locator('#details-title').textContent()) === first;
    // A page that is open follows a link too, in place of the call that it shows.
    const second = await page.evaluate(() => document.querySelectorAll('#past tbody tr:not([hidden])')[1].dataset.n);
    await rows('past').nth(1).getByRole('button').click();
    await page.getByRole('button', { name: 'Copy link' }).click();
    const onward = await clipboard();
    await page.keyboard.press('Escape');
    await other.evaluate(hash => (location.hash = hash), new URL(onward).hash);
    await other.waitForFunction(n => location.hash.startsWith(`#call=${n}-`) && document.querySelector('#messages > .card'), second);
    seen.followed = (await other.locator('#details[open]').count()) === 1 && (await other.locator('#details-title').textContent()) !== '';
    await other.goto(`${options.url}#call=999-1`);
    await other.locator('#missing').waitFor();
    seen.closed = (await other.locator('#details[open]').count()) === 0;
    await other.close();
}

const scenes = {
    /** A call comes, moves and ends; its messages are read, by keyboard alone. */
    async watch() {
        await page.goto(options.url);
        await live();
        await page.getByRole('button', { name: 'Copy address' }).waitFor();
        seen.empty = await page.locator('#first').innerText();
        await page.getByRole('button', { name: 'Copy line' }).click();
        seen.line = await clipboard();
        await page.getByLabel('Line for').selectOption('Cursor');
        seen.cursor = JSON.parse(await page.locator('#first-text').textContent());
        await expectAccessible('empty');
        // Each figure that an assistive technology could have been told of.
        await page.evaluate(() => {
            globalThis.figures = [];
            const look = () => {
                const bar = document.querySelector('#open tr:not([hidden]) [role=progressbar]');
                const figure = bar && { now: bar.getAttribute('aria-valuenow'), text: bar.getAttribute('aria-valuetext') };
                if (figure && JSON.stringify(figure) !== JSON.stringify(globalThis.figures.at(-1))) globalThis.figures.push(figure);
            };
            new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
        });
        console.log('ready');
        const bar = rows('open').getByRole('progressbar');
        await bar.waitFor();
        seen.open = (await bar.locator('xpath=ancestor::tr').innerText()).split('\n');
        await rows('open').getByRole('button').focus();
        await rows('past').waitFor();
        seen.figures = await page.evaluate(() => globalThis.figures);
        // The focus stays with its call.
        seen.followed = await page.evaluate(() => document.querySelector('#past tbody').contains(document.activeElement));
        seen.left = await rows('open').count();
        const past = rows('past');
        seen.past = (await past.innerText()).split('\n');
        seen.chips = await past.locator('.chip').allInnerTexts();
        seen.meanings = await past.locator('.chip').evaluateAll(chips => chips.map(chip => chip.title));
        await page.locator('#said').filter({ hasText: 'ended after' }).waitFor({ state: 'attached' });
        seen.said = await page.locator('#said').textContent();
        seen.totals = (await page.locator('#totals tr').innerText()).split('\t').map(text => text.trim());

        const name = await past.getByRole('button').textContent();
        // What else the client asked is there as well.
        await page.getByLabel('Only tool calls').uncheck();
        seen.others = await rows('past').locator('.link').allTextContents();
        await page.getByLabel('Only tool calls').check();
        await page.locator('#by-route').focus();
        await tabTo(name);
        await page.keyboard.press('Enter');
        await page.locator('#messages > .card').first().waitFor();
        seen.inside = await page.evaluate(() => document.querySelector('dialog').contains(document.activeElement));
        seen.messages = await page.locator('#messages > .card').evaluateAll(items => items.map(item => ({
            kinds: [...item.querySelectorAll('.chip')].map(chip => chip.textContent),
            why: item.querySelector('.why').textContent,
            sides: [...item.querySelectorAll('.side')].map(side => ({
                title: side.querySelector('h4').textContent,
                text: [...side.querySelectorAll('code')].map(line => line.textContent).join('\n'),
                marked: [...side.querySelectorAll('.left, .new')].map(line => line.textContent),
            })),
        })));
        seen.facts = await page.locator('#facts').innerText();
        await expectAccessible('details');
        await page.keyboard.press('Escape');
        seen.closed = !(await page.locator('#details').isVisible());
        seen.back = await focused();
        await page.locator('.legend summary').click();
        await expectAccessible('list');
    },

    /** Names that are markup stay text; filters and the pause do what they say. */
    async names() {
        await page.goto(options.url);
        await live();
        await rows('past').nth(1).waitFor();
        seen.names = await page.locator('#past .link').allTextContents();
        for (const button of await page.locator('#past .link').all()) {
            await button.click();
            await page.locator('#messages > .card').first().waitFor();
            await page.keyboard.press('Escape');
        }
        seen.made = await page.locator('img, iframe, object, script[src], link[rel=stylesheet], main b > *, main script').count();
        const visible = async () => (await rows('past').locator('.link').allTextContents()).sort();
        await page.locator('#search').fill('IMG onerror');
        seen.filtered = await visible();
        seen.counted = await page.locator('#past-title').innerText();
        await page.keyboard.press('Escape');
        seen.blurred = await page.evaluate(() => document.activeElement === document.body && document.querySelector('#search').value === '');
        await page.locator('#by-change').check();
        seen.unchanged = await visible();
        seen.none = await page.locator('#past-empty').innerText();
        await page.locator('#by-change').uncheck();
        await keysAndLinks();
        await page.getByRole('button', { name: 'Pause' }).click();
        seen.paused = await state();
        await page.getByRole('button', { name: 'Pause' }).click();
        seen.resumed = await state();
    },

    /** The connection is lost, and comes back with another Milepost behind it. */
    async lost() {
        const call = {
            n: 1, route: '/other', method: 'tools/call', tool: 'of_before', client: null, token: true, opened: Date.now(), ended: null, outcome: null,
            progress: '2', total: null, message: null, spoke: null, told: null, received: 0, overheard: 0, sent: 0, heartbeats: 0, repaired: {}, withheld: {}, messages: 0,
        };
        const events = { routes: [], calls: [call], now: Date.now() };
        const body = Object.entries(events).map(([event, data]) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join('');
        // The page tries again by itself too. Only the try of the button gets through, so that there is a button to click.
        const isAsked = () => page.evaluate(() => globalThis.isAsked === true);
        await page.route('**/calls', async route =>
            (await isAsked()) ? route.continue() : route.fulfill({ status: 503, body: 'milepost: too many\n' }));
        await page.route('**/calls', route => route.fulfill({ contentType: 'text/event-stream', body }), { times: 1 });
        await page.goto(options.url);
        await page.locator('#trouble').filter({ hasText: 'too many' }).waitFor();
        seen.state = await state();
        seen.trouble = await page.locator('#trouble').innerText();
        seen.said = await page.locator('#said').textContent();
        seen.stale = await page.locator('#open .link').allTextContents();
        await expectAccessible('lost');
        await page.evaluate(() => document.querySelector('#retry')
            .addEventListener('click', () => { globalThis.isAsked = true; }, { capture: true }));
        await page.getByRole('button', { name: 'Try now' }).click();
        await live();
        await page.getByRole('button', { name: 'of_before' }).waitFor({ state: 'detached' });
        seen.again = await state();
        seen.complaints = seen.complaints.filter(text => !text.includes('503'));
    },

    /** Many messages, of which most passed as they came, and a Milepost that stops. */
    async messages() {
        const call = {
            n: 1, route: '/other', method: 'tools/call', tool: 'long', client: null, token: true, opened: Date.now(), ended: null, outcome: null,
            progress: null, total: null, message: 'still indexing', spoke: null, told: null, received: 60, overheard: 0, sent: 60, heartbeats: 0, repaired: {}, withheld: {}, messages: 60,
        };
        const messages = Array.from({ length: 60 }, (_, at) => ({ at, what: 'forwarded', why: [], because: [], before: `{"number":${at}}`, after: null }));
        Object.assign(messages[3], { what: 'repaired', why: ['token'], because: ['b'], after: '{"number":"three"}' });
        const events = { routes: [], calls: [call], stopping: true, now: Date.now() };
        const body = Object.entries(events).map(([event, data]) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join('');
        await page.addInitScript(() => {
            globalThis.states = [];
            addEventListener('DOMContentLoaded', () => new MutationObserver(() => globalThis.states.push(document.querySelector('#state').textContent))
                .observe(document.querySelector('#state'), { childList: true, characterData: true, subtree: true }));
        });
        await page.route('**/calls', route => route.fulfill({ contentType: 'text/event-stream', body }));
        await page.route('**/calls/1', route => route.fulfill({ json: { call, left_out: 7, messages } }));
        await page.goto(options.url);
        await page.getByRole('button', { name: 'long' }).click();
        await page.locator('.fold').nth(58).waitFor();
        await page.waitForFunction(() => globalThis.states.some(text => text.startsWith('Stopping')));
        seen.states = await page.evaluate(() => globalThis.states);
        seen.row = await rows('open').innerText();
        seen.count = await page.locator('#messages-count').textContent();
        seen.folds = await page.locator('.fold:not([open])').count();
        await page.locator('#messages > li').last().waitFor();
        await page.waitForFunction(() => document.querySelector('#messages').lastElementChild.getBoundingClientRect().bottom <= innerHeight + 40);
        await page.locator('.fold').last().locator('summary').click();
        await page.locator('.fold[open] .side code').first().waitFor();
        seen.unfolded = await page.locator('.fold[open] .side code').allTextContents();
        await expectAccessible('folded');
    },

    /** Of many calls those in flight are folded, failed and silent ones are a click away, and columns sort; also on a phone. */
    async many() {
        const began = Date.now();
        const call = (n, more) => ({
            n, route: n % 2 ? '/odd' : '/even', method: 'tools/call', tool: `tool-${String(n).padStart(3, '0')}`, client: null, token: true, opened: began - 70_000 + n, ended: null, outcome: null,
            progress: null, total: null, message: null, spoke: null, told: null, received: 0, overheard: 0, sent: 0, heartbeats: 0, repaired: {}, withheld: {}, messages: 0, ...more,
        });
        const open = Array.from({ length: 67 }, (_, n) => call(n, n < 3 ? {} : { spoke: began + 3_600_000 }));
        const past = Array.from({ length: 200 }, (_, at) => {
            const n = 100 + at;
            return call(n, { ended: began - 69_000 + n + n * 37 % 200 * 10, outcome: n % 9 ? 'result' : 'tool error' });
        });
        const body = Object.entries({ routes: [], calls: [...open, ...past], now: began })
            .map(([event, data]) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join('');
        await page.route('**/calls', route => route.fulfill({ contentType: 'text/event-stream', body }));
        await page.route('**/calls/*', route => route.fulfill({ json: { call: past[127], left_out: 0, messages: [] } }));
        await page.goto(options.url);
        await rows('past').nth(199).waitFor({ state: 'attached' });
        const [failed, silent] = [page.locator('#only-failed'), page.locator('#only-silent')];
        const counts = async () => [await rows('open').count(), await rows('past').count()];
        const first = table => rows(table).first().locator('.link').textContent();
        seen.chips = [await failed.textContent(), await silent.textContent()];
        seen.folded = await counts();
        seen.more = await page.locator('#open-more').textContent();
        await page.locator('#open-more').click();
        seen.unfolded = await counts();
        await page.locator('#open-more').click();
        await silent.click();
        seen.silent = await counts();
        await failed.click();
        seen.failing = await counts();
        await expectAccessible('many');
        await failed.click();
        seen.all = await counts();
        const took = page.locator('#past').getByRole('button', { name: 'Took' });
        await took.click();
        seen.longest = await first('past');
        await took.click();
        seen.shortest = await first('past');
        seen.sort = await page.locator('#past th[aria-sort=ascending]').innerText();
        await page.locator('#open').getByRole('button', { name: 'Running' }).click();
        seen.youngest = await first('open');
        await page.setViewportSize({ width: 390, height: 844 });
        seen.routes = await page.locator('.wide').evaluate(wide => [wide, ...wide.querySelectorAll('td, th')]
            .filter(part => part.scrollWidth > part.clientWidth + 1 || part.getBoundingClientRect().right > innerWidth).map(part => part.textContent));
        seen.recent = await page.locator('#past-title').evaluate(title => title.getBoundingClientRect().top + scrollY);
        await rows('past').first().getByRole('button').click();
        await page.locator('#details[open]').waitFor();
        seen.header = await page.locator('#details > header').evaluate(header => ({
            title: header.querySelector('h2').getBoundingClientRect().height,
            cut: [...header.children].filter(child => child.scrollWidth > child.clientWidth + 1 || child.getBoundingClientRect().right > innerWidth).map(child => child.textContent),
        }));
    },

    /** A token is asked for, and kept for as long as the tab is open. */
    async token() {
        await page.goto(options.url);
        const field = page.getByLabel('Token', { exact: true });
        await field.waitFor();
        seen.asked = await page.locator('#ask').innerText();
        seen.focus = await page.evaluate(() => document.activeElement.id);
        await expectAccessible('token');
        await field.fill('wrong');
        await page.keyboard.press('Enter');
        await page.locator('#ask-why').filter({ hasText: 'is wrong' }).waitFor();
        await field.fill(options.token);
        await page.keyboard.press('Enter');
        await live();
        seen.hidden = !(await page.locator('#ask').isVisible());
        await page.reload();
        await live();
        seen.kept = await page.evaluate(() => [sessionStorage.length, localStorage.length, document.cookie]);
        // Chromium itself tells of each status that is an error.
        seen.refused = seen.complaints.filter(text => text.includes('401')).length;
        seen.complaints = seen.complaints.filter(text => !text.includes('401'));
    },

    /** A link has the token, as the log of a terminal has one. */
    async link() {
        seen.states = [];
        seen.addresses = [];
        const look = async on => {
            await on.locator('#state[data-is=live]').waitFor();
            seen.states.push(await on.locator('#state').textContent());
            const { pathname, hash } = await on.evaluate(() => location);
            seen.addresses.push(pathname + hash);
        };
        const link = `${options.url}#token=${options.token}`;
        await page.goto(options.url);
        await page.locator('#ask').waitFor();
        await page.goto(link);
        await look(page);
        const other = await context.newPage();
        await other.goto(link);
        await look(other);
        await other.reload();
        await look(other);
        seen.refused = seen.complaints.filter(text => text.includes('401')).length;
        seen.complaints = seen.complaints.filter(text => !text.includes('401'));
    },

    /** A picture of what goes on, for the documentation. */
    async picture() {
        await page.goto(options.url);
        await live();
        console.log('ready');
        await rows('past').nth(3).waitFor();
        await rows('open').nth(3).waitFor();
        await page.setViewportSize({ width: 1280, height: 960 });
        await page.waitForTimeout(12_000);
        await page.screenshot({ path: options.picture });
    },
};

let code = 0;
try {
    await scenes[scene]();
} catch (error) {
    seen.failed = String(error.stack);
    seen.shown = await page.locator('body').innerText().catch(String);
    code = 1;
}
await browser.close();
console.log(JSON.stringify(seen));
process.exit(code);
