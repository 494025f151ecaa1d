//! The command line program. Its work is in the library, which is compiled once; this program is only linked.

use std::process::ExitCode;

fn main() -> ExitCode {
    milepost::commands::program::main()
}
