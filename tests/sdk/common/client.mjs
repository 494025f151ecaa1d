// What the TypeScript drivers share: the command line, the calls, the report.
// See ../README.md for both formats.
import { subscribe } from 'node:diagnostics_channel';
import { performance } from 'node:perf_hooks';

const MAX_LISTED = 20;
const CLOSE_MS = 8000;

function usage(problem) {
    console.error(`${problem}\nusage: client --call TOOL[=JSON] ... [options] --url URL | --sse URL | -- CMD [ARG...]   (see tests/sdk/README.md)`);
    process.exit(2);
}

function parseCall(text) {
    const cut = text.indexOf('=');
    if (cut < 0) return { tool: text, args: {} };
    try {
        return { tool: text.slice(0, cut), args: JSON.parse(text.slice(cut + 1)) };
    } catch (error) {
        return usage(`--call ${text}: ${error.message}`);
    }
}

function parseArgs(argv) {
    const options = { calls: [], headers: {}, repeat: 1, deadline: 120, linger: 100, busy: 0, progress: true };
    const number = (name, text) => {
        const value = Number(text);
        if (text === undefined || !Number.isFinite(value) || value < 0) usage(`${name} needs a number`);
        return value;
    };
    const url = (name, text) => (URL.canParse(text) ? new URL(text) : usage(`${name} needs a URL`));
    const header = text => {
        const cut = text?.indexOf('=') ?? -1;
        if (cut < 1) usage('--header needs NAME=VALUE');
        options.headers[text.slice(0, cut)] = text.slice(cut + 1);
    };
    for (let i = 0; i < argv.length; i++) {
        const arg = argv[i];
        if (arg === '--') {
            [options.command, ...options.args] = argv.slice(i + 1);
            break;
        } else if (arg === '--call') options.calls.push(parseCall(argv[++i] ?? usage('--call needs a tool')));
        else if (arg === '--repeat') options.repeat = number(arg, argv[++i]);
        else if (arg === '--timeout') options.timeout = number(arg, argv[++i]);
        else if (arg === '--deadline') options.deadline = number(arg, argv[++i]);
        else if (arg === '--linger') options.linger = number(arg, argv[++i]);
        else if (arg === '--busy') options.busy = number(arg, argv[++i]);
        else if (arg === '--negotiate') options.negotiate = argv[++i];
        else if (arg === '--protocol') options.protocol = argv[++i];
        else if (arg === '--url') options.url = url(arg, argv[++i]);
        else if (arg === '--sse') options.sse = url(arg, argv[++i]);
        else if (arg === '--header') header(argv[++i]);
        else if (arg === '--concurrent') options.concurrent = true;
        else if (arg === '--list') options.list = true;
        else if (arg === '--reset') options.reset = true;
        else if (arg === '--no-progress') options.progress = false;
        else usage(`unknown argument ${arg}`);
    }
    if ([options.command, options.url, options.sse].filter(Boolean).length !== 1) usage('one of --url, --sse and a command after -- is needed');
    return options;
}

/** What goes wrong below the SDK, as Node's own HTTP client sees it. */
function watchHttp(report) {
    const note = (request, what) => {
        report.http_error_count++;
        if (report.http_errors.length < MAX_LISTED) report.http_errors.push(`${request.method} ${what}`.slice(0, 200));
    };
    subscribe('undici:request:headers', ({ request, response }) => {
        if (response.statusCode >= 400) note(request, response.statusCode);
    });
    subscribe('undici:request:error', ({ request, error }) => {
        if (error?.name !== 'AbortError') note(request, error?.code ?? error);
    });
}

/** Keeps the event loop busy `ms` milliseconds between two looks at the sockets. */
function keepBusy(ms) {
    let on = ms > 0;
    const spin = () => {
        if (!on) return;
        const until = performance.now() + ms;
        while (performance.now() < until);
        setImmediate(spin);
    };
    if (on) setImmediate(spin);
    return () => {
        on = false;
    };
}

/**
 * Runs one client. `sdk` gives what differs between the SDK versions: `newClient(options)`, the transports
 * `Stdio`, `Http` and `Sse`, `prepare(transport, options)`, `callTool(client, params, requestOptions)`,
 * `isTimeout(error)` and `protocol(client, transport)`.
 */
export async function run(name, sdk) {
    const options = parseArgs(process.argv.slice(2));
    const report = {
        client: name, connected: false, server_version: null, protocol: null,
        calls: [], stray_progress: 0, notifications: {}, errors: [], error_count: 0, http_errors: [], http_error_count: 0,
    };
    const fault = error => {
        const text = String(error?.message ?? error);
        report.error_count++;
        if (report.errors.length < MAX_LISTED) report.errors.push(text.slice(0, 200));
        if (text.includes('progress notification for an unknown token')) report.stray_progress++;
    };
    process.on('uncaughtException', fault);
    process.on('unhandledRejection', fault);

    const client = sdk.newClient(options);
    client.onerror = fault;
    client.fallbackNotificationHandler = async ({ method }) => {
        report.notifications[method] = (report.notifications[method] ?? 0) + 1;
    };
    const { command, args, url, sse, headers } = options;
    const transport = command
        ? new sdk.Stdio({ command, args, env: { ...process.env }, stderr: 'inherit' })
        : new (url ? sdk.Http : sdk.Sse)(url ?? sse, { requestInit: { headers } });
    sdk.prepare?.(transport, options);
    watchHttp(report);

    const callOnce = async ({ tool, args }) => {
        const start = performance.now();
        const elapsed = () => Math.round(performance.now() - start);
        const entry = { tool, progress: [], outcome: 'timeout', is_error: false, error: 'still running at the deadline', code: null, result: null, ms: null };
        report.calls.push(entry);
        const request = {};
        if (options.timeout !== undefined) request.timeout = options.timeout * 1000;
        if (options.reset) request.resetTimeoutOnProgress = true;
        if (options.progress) {
            request.onprogress = p => entry.progress.push([p.progress, p.total ?? null, p.message ?? null, elapsed()]);
        }
        try {
            entry.result = await sdk.callTool(client, { name: tool, arguments: args }, request);
            Object.assign(entry, { outcome: 'result', is_error: entry.result.isError === true, error: null });
        } catch (error) {
            const code = typeof error?.code === 'number' ? error.code : null;
            Object.assign(entry, { outcome: sdk.isTimeout(error) ? 'timeout' : 'error', error: String(error?.message ?? error), code });
        }
        entry.ms = elapsed();
    };

    const session = async () => {
        try {
            await client.connect(transport);
        } catch (error) {
            fault(error);
            return;
        }
        report.connected = true;
        report.server_version = client.getServerVersion() ?? null;
        report.protocol = sdk.protocol(client, transport) ?? null;
        if (options.list) {
            try {
                report.tools = (await client.listTools()).tools.map(tool => tool.name);
            } catch (error) {
                fault(error);
            }
        }
        const calls = Array.from({ length: options.repeat }, () => options.calls).flat();
        const rest = keepBusy(options.busy);
        try {
            if (options.concurrent) await Promise.all(calls.map(callOnce));
            else for (const call of calls) {
                if (ended) break;
                await callOnce(call);
            }
            await new Promise(resolve => setTimeout(resolve, options.linger));
        } finally {
            rest();
        }
    };

    let ended = false;
    const deadline = new Promise(resolve => setTimeout(resolve, options.deadline * 1000, 'deadline'));
    if ((await Promise.race([session(), deadline])) === 'deadline') fault(new Error(`deadline of ${options.deadline} s reached`));
    ended = true;
    // Half of a surrogate pair, which this client may have been given, cannot be read back by all readers of JSON.
    const wellFormed = (_, value) => (typeof value === 'string' ? value.toWellFormed() : value);
    const text = () => JSON.stringify(report, wellFormed);
    const frozen = report.calls.map(call => ({ ...call }));
    const { pid } = transport;
    const closed = client.close().catch(fault).then(() => 'closed');
    const waited = await Promise.race([closed, new Promise(resolve => setTimeout(resolve, CLOSE_MS))]);
    if (waited !== 'closed' && pid) {
        fault(new Error('the server did not close and was killed'));
        try {
            process.kill(pid, 'SIGKILL');
        } catch { /* it ended meanwhile */ }
    }
    // Closing ends the calls still running with an error of its own: report them as they were.
    report.calls = frozen;
    process.stdout.write(text() + '\n', () => process.exit(0));
}
