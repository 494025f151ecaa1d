//! The command line of `milepost cancel`.

use clap::Args;

use super::admin::AdminArgs;

/// The call to be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallToCancel {
    /// The call with this number.
    Number(u64),
    /// The open call that began last.
    Last,
}

/// `milepost cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The number of the call, as `milepost cancel`, `top` and the live page show it, or `last`: the call that began last
    #[arg(value_name = "CALL", value_parser = call)]
    pub call: Option<CallToCancel>,
    /// The admin listener, if one is named.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Why: the client, the server and the log are told
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Only calls of this server: a path of `serve`, or the name of a `wrap` as `milepost ls` shows it
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Only calls of this process of Milepost
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

fn call(text: &str) -> Result<CallToCancel, String> {
    match text {
        "last" => Ok(CallToCancel::Last),
        text => text
            .trim_start_matches('#')
            .parse()
            .map(CallToCancel::Number)
            .map_err(|_| "the number of a call, or `last`, is expected".to_owned()),
    }
}
