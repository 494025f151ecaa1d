//! The command line program. Its work is in the library, so that the compiler makes the code of the library
//! once and only links the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    milepost::commands::program::main()
}
