// What the TypeScript servers share: the command line, the tools, the end.
// See ../README.md.
import { setTimeout as sleep } from 'node:timers/promises';

function usage(problem) {
    console.error(`${problem}\nusage: server [--http PORT [--sse | [--json] [--stateless] [--resumable]] [--deadline S]]   (see tests/sdk/README.md)`);
    process.exit(2);
}

/** The command line; `flags` are those of `--json`, `--stateless`, `--resumable` and `--sse` that the server has. */
export function serverOptions(flags) {
    const options = { deadline: 600 };
    const argv = process.argv.slice(2);
    while (argv.length > 0) {
        const word = argv.shift();
        if (word === '--http' || word === '--deadline') {
            const value = Number(argv.shift() ?? NaN);
            if (!(value >= 0)) usage(`${word} needs a number`);
            options[word.slice(2)] = value;
        } else if (flags.includes(word)) options[word.slice(2)] = true;
        else usage(`unknown argument ${word}`);
    }
    if (options.http === undefined && flags.some(flag => options[flag.slice(2)])) usage('without --http the server speaks stdio');
    return options;
}

/** Tells where the server listens. It ends when whoever started it does, or at the deadline. */
export function announce(server, path, { deadline }) {
    server.on('listening', () => process.stdout.write(`listening on http://127.0.0.1:${server.address().port}${path}\n`));
    server.on('error', error => {
        console.error(error.message);
        process.exit(1);
    });
    setTimeout(() => process.exit(0), deadline * 1000);
    process.stdin.resume().on('close', () => process.exit(0));
}

const text = value => ({ content: [{ type: 'text', text: value }] });

/**
 * Registers the tools. `sdk` gives what differs between the SDK versions: `shape(fields)`,
 * `token(context)`, `notify(context, notification)` and `ping(context)`.
 */
export function addTools(server, z, sdk) {
    /** Reports progress with the caller's token, as the SDK's documentation shows; nothing without a token. */
    const report = (context, progress, total, message) => {
        const progressToken = sdk.token(context);
        if (progressToken === undefined) return undefined;
        const params = { progressToken, progress };
        if (total !== undefined) params.total = total;
        if (message !== undefined) params.message = message;
        return sdk.notify(context, { method: 'notifications/progress', params });
    };
    const tool = (name, fields, work) => server.registerTool(name, { inputSchema: sdk.shape(fields) }, work);

    tool('steps', { count: z.number().default(3), ms: z.number().default(50), total: z.number().optional() },
        async ({ count, ms, total }, context) => {
            for (let step = 1; step <= count; step++) {
                await sleep(ms);
                await report(context, step, total, `step ${step}`);
            }
            await sleep(ms);
            return text(`${count} steps done`);
        });

    tool('quiet', { ms: z.number().default(1000) }, async ({ ms }) => {
        await sleep(ms);
        return text(`quiet for ${ms} ms`);
    });

    // Not awaited: the progress and the result are written in the same turn of the event loop.
    tool('burst', {}, async (_args, context) => {
        void report(context, 100, 100, 'done');
        return text('burst done');
    });

    tool('big', { bytes: z.number().default(1000), ms: z.number().default(0) }, async ({ bytes, ms }) => {
        await sleep(ms);
        return text('x'.repeat(bytes));
    });

    tool('ask', {}, async (_args, context) => {
        await sdk.ping(context);
        return text('the client answered the ping');
    });
}
