//! Pipes in memory between server, proxy and client, and the messages on these pipes.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{
    AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, WriteHalf, duplex, sink, split,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::gateway::demo_upstream::server;
use crate::gateway::mcp_server::LineReader;
use crate::progress::{FilterEvent, Policy};
use crate::relay::{DiagnosticsSink, Pipe, Relay, RelayStep};
use crate::transport::tasks;

/// The capacity of a pipe, as in an operating system.
const PIPE_BYTES: usize = 64 << 10;

/// A message that passed through the pipe.
#[derive(Debug)]
pub(crate) enum PipeEvent {
    /// The server sent this line.
    Sent(Bytes),
    /// The proxy has decided about a message.
    Decided(FilterEvent),
    /// The client got this line.
    Got(Bytes),
}

/// The client's end of the connection, and the observed messages of both ends.
pub(crate) struct Pipes {
    requests: WriteHalf<DuplexStream>,
    /// The events of all pipes. The channel closes when server and proxy have ended.
    pub(crate) events: UnboundedReceiver<PipeEvent>,
    /// The tasks of the connection, which end when this value is dropped.
    _tasks: JoinSet<()>,
}

impl Pipes {
    /// Starts a server and a proxy. A tap between them reports each line of the server before passing it on.
    pub(crate) fn connect(policy: Policy, silence: Duration) -> Self {
        let (client_end, proxy_front) = duplex(PIPE_BYTES);
        let (proxy_back, tapped) = duplex(PIPE_BYTES);
        let (tap, server_end) = duplex(PIPE_BYTES);
        let (report, events) = unbounded_channel();
        let mut tasks = JoinSet::new();

        let (requests, answers) = split(server_end);
        tasks::spawn_in(&mut tasks, async move {
            // Ignore the error: the server fails only when its output is no longer read.
            let _ = server::serve(requests, answers, silence).await;
        });

        let (from_proxy, to_proxy) = split(tapped);
        let (from_server, to_server) = split(tap);
        tasks::spawn_in(&mut tasks, pump(from_proxy, to_server, |_| {}));
        tasks::spawn_in(
            &mut tasks,
            pump(from_server, to_proxy, sender_of(report.clone(), PipeEvent::Sent)),
        );

        let (client_in, client_out) = split(proxy_front);
        let (server_in, server_out) = split(proxy_back);
        let client = Pipe::new(Box::new(client_in), Box::new(client_out));
        let server = Pipe::new(Box::new(server_in), Box::new(server_out));
        let diagnostics = DiagnosticsSink::new(Box::new(sink()), None);
        let proxy = Relay::with_sole_stream(policy, client, server, diagnostics);
        tasks::spawn_in(&mut tasks, relay(proxy, sender_of(report.clone(), PipeEvent::Decided)));

        let (answers, requests) = split(client_end);
        tasks::spawn_in(&mut tasks, pump(answers, sink(), sender_of(report, PipeEvent::Got)));
        Self { requests, events, _tasks: tasks }
    }

    /// Sends a line of the client. If the proxy has ended, the events report that.
    pub(crate) async fn send(&mut self, line: &str) {
        let _ = self.requests.write_all(format!("{line}\n").as_bytes()).await;
    }

    /// Closes the client's output.
    pub(crate) async fn close(&mut self) {
        let _ = self.requests.shutdown().await;
    }
}

fn sender_of<T>(to: UnboundedSender<PipeEvent>, event: fn(T) -> PipeEvent) -> impl FnMut(T) {
    move |what| {
        let _ = to.send(event(what));
    }
}

/// Passes on lines until the end of `from`, and calls `show` for each line first.
async fn pump(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut show: impl FnMut(Bytes),
) {
    let mut lines = LineReader::new(from);
    while let Some(line) = lines.next().await {
        show(line.clone());
        if to.write_all(&line).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// Runs a connection to its end, as `milepost wrap` does with a child process.
async fn relay(mut relay: Relay<Pipe, Pipe>, mut note: impl FnMut(FilterEvent)) {
    loop {
        let step = relay.step().await;
        while let Some(record) = relay.poll_event() {
            note(record);
        }
        match step {
            RelayStep::Moved => {}
            RelayStep::ClientDone | RelayStep::ClientGone => relay.close_server_input().await,
            RelayStep::ServerDone => break,
        }
    }
    relay.server_gone("the demonstration is over");
    relay.finish(Duration::from_secs(1)).await;
    while let Some(record) = relay.poll_event() {
        note(record);
    }
}
