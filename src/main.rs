//! The command line program: parse arguments, run, exit code.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use milepost::cli::{Cli, Command};
use milepost::{demo, telemetry, wrap};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        let _log = telemetry::start(tracing::Level::DEBUG, telemetry::LogFormat::Text);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(milepost::serve::run_tmp(std::path::Path::new(
            &std::env::args().nth(2).unwrap(),
        )));
    }
    let cli = Cli::parse();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&error, 1),
    };
    let code = runtime.block_on(run(cli.command));
    // A thread that waits for a terminal must not keep us.
    runtime.shutdown_background();
    code
}

async fn run(command: Command) -> ExitCode {
    match command {
        Command::Wrap(args) => {
            let _log = telemetry::start(args.log_level, args.log_format);
            let (policy, command) = match args.resolve() {
                Ok(meant) => meant,
                Err(error) => return report(&error, 2),
            };
            match wrap::run(policy, &command).await {
                Ok(code) => ExitCode::from(code),
                Err(error) => report(&error, 127),
            }
        }
        Command::Demo(args) => match demo::run(args.silence).await {
            Ok(code) => ExitCode::from(code),
            Err(error) => report(&error, 1),
        },
    }
}

/// Says what went wrong and why, on standard error.
fn report(error: &dyn Error, code: u8) -> ExitCode {
    let mut text = format!("milepost: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    eprintln!("{text}");
    ExitCode::from(code)
}
