//! The command line program. All its work is in the library, so that the library is compiled once and this program only
//! linked.

use std::process::ExitCode;

fn main() -> ExitCode {
    milepost::commands::program::main()
}
