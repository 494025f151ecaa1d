//! `milepost mock`: serves a recording as an MCP server, over stdio or HTTP. A request gets what the recorded server
//! sent for a request with the same method and parameters; any other request gets an error that names the most similar
//! one.

mod http;
mod rename;
mod script;
mod session;
mod stdio;

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use script::{MockScript, ScriptReuse};
use session::{MockPace, MockTally, MockTerms};

use crate::lab::recordings::RecordingError;
use crate::lab::recordings::calls::{RecordedCalls, RecordedSide};
use crate::platform::signals::Signals;

pub use self::http::SESSIONS_MAX;
pub use self::session::{MISSED_MAX, OPEN_MAX};

/// `milepost mock`.
#[derive(Debug, clap::Args)]
pub struct MockArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Serve Streamable HTTP and HTTP+SSE on this address, not stdio; port 0 is a free one. The URL is on standard
    /// error
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Serve N times as fast as it was recorded
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Wait for nothing
    #[arg(long, conflicts_with = "speed")]
    pub instant: bool,
    /// Serve the last recorded request again if one is asked for more often than it was recorded
    #[arg(long)]
    pub repeat: bool,
    /// The side of Milepost whose messages are served
    #[arg(long, value_enum, default_value = "server")]
    pub side: RecordedSide,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if f64::is_finite(speed) && speed > 0.0 => Ok(speed),
        _ => Err("a number above 0 is expected, such as 2 or 0.5".to_owned()),
    }
}

/// The reason why a recording cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The recording cannot be used.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The recording has no request to serve.
    #[error("{}:1: a request is expected; this recording has none", .0.display())]
    NoRequest(PathBuf),
    /// The address cannot be used.
    #[error("--listen {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The system does not deliver signals, or standard input or output has failed.
    #[error("the conversation has failed")]
    Io(#[from] io::Error),
}

/// Serves a recording until standard input ends or a signal comes. Returns whether each request was in the recording.
///
/// # Errors
/// If the recording or the address cannot be used.
pub async fn run(args: &MockArgs) -> Result<bool, MockError> {
    let recording = RecordedCalls::load(&args.file)?;
    for remark in &recording.remarks {
        eprintln!("milepost: {}: {remark}", args.file.display());
    }
    let script = Arc::new(MockScript::new(&recording, args.side));
    if script.requests() == 0 {
        return Err(MockError::NoRequest(args.file.clone()));
    }
    drop(recording);
    if script.large > 0 {
        eprintln!(
            "milepost: large messages, which the recording has by id and length only, are served so: {}",
            script.large
        );
    }
    let pace = if args.instant { MockPace::Instant } else { MockPace::Speed(args.speed) };
    let reuse = if args.repeat { ScriptReuse::Repeated } else { ScriptReuse::Once };
    let terms = MockTerms { pace, reuse };
    let mut signals = Signals::to_stop()?;
    let stop = async move {
        signals.next().await;
    };
    let tally = match args.listen {
        None => stdio::serve(&script, terms, stop).await?,
        Some(address) => {
            let server = http::HttpMock::listen(&script, terms, address);
            let server = server.await.map_err(|error| MockError::Listen(address, error))?;
            eprintln!("milepost: serves {} on {}", args.file.display(), server.url());
            stop.await;
            server.tally()
        }
    };
    eprint!("{}", summary(&tally));
    Ok(tally.misses == 0)
}

/// Returns the counts to print at the end.
fn summary(tally: &MockTally) -> String {
    let requests = if tally.served == 1 { "request" } else { "requests" };
    let mut text = format!(
        "milepost: {} {requests} served from the recording, {} not in it\n",
        tally.served, tally.misses
    );
    for missed in &tally.missed {
        let _ = writeln!(text, "  {missed}");
    }
    let more = tally.misses.saturating_sub(tally.missed.len());
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
    text
}
