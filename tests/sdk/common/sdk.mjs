// Finds the SDK packages that `tests/sdk/setup` installed.
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const home = process.env.MILEPOST_SDK_DIR ?? fileURLToPath(new URL('../../../target/sdk', import.meta.url));

/** Where a file of the node part is, to import it. */
export function sdkModule(path) {
    return pathToFileURL(join(home, 'node', path)).href;
}

/** Loads the SDK called `name` ("ts1" or "ts2"): what its sdk.mjs exports. */
export async function loadSdk(name) {
    try {
        return await import(sdkModule(`${name}.mjs`));
    } catch (error) {
        console.error(`cannot load the ${name} SDK, run tests/sdk/setup first: ${error.message}`);
        process.exit(3);
    }
}
