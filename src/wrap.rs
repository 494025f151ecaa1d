//! `milepost wrap -- CMD`: a child process behind our own standard streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::host::{Host, Signals};
use crate::jsonrpc::{Kind, Message, own_error};
use crate::lines::{Frame, INSPECT_MAX, Lines};
use crate::progress::Policy;
use crate::relay::{Pipe, Relay};
use crate::transport::child::{self, Program};
use crate::transport::stdio;

/// How long a client's first request is waited for to tell it that the server does not start.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Runs a server behind the filter until it ends, and answers with its exit code.
pub async fn run(policy: Policy, program: Program) -> Result<u8, child::SpawnError> {
    child::adopt_orphans();
    let client = Pipe::new(stdio::input(), stdio::output());
    let relay = |server, aside| Relay::with_wire(policy, client, server, aside);
    match Host::start(program, None, Arc::default(), stdio::error(), relay) {
        Ok(mut host) => Ok(host.run(Signals::listen().ok()).await.code()),
        Err(error) => {
            tell_that_it_does_not_start(&error.to_string()).await;
            Err(error)
        }
    }
}

/// Answers the client's first request, so that a person reads the reason where they look, and not
/// only that the connection has closed.
async fn tell_that_it_does_not_start(why: &str) {
    let mut input = stdio::input();
    let mut output = stdio::output();
    let mut lines = Lines::new(INSPECT_MAX);
    let mut buffer = BytesMut::new();
    let first = async {
        loop {
            match input.read_buf(&mut buffer).await {
                Ok(1..) => {}
                _ => return None,
            }
            while let Some(frame) = lines.decode(&mut buffer) {
                let Frame::Line(line) = frame else { continue };
                let message = Message::parse(line);
                if message.kind() == Kind::Request {
                    return message.id();
                }
            }
        }
    };
    let Ok(Some(id)) = timeout(FIRST_REQUEST, first).await else { return };
    let answer = [&own_error(&id, why, None)[..], b"\n"].concat();
    let _ = output.write_all(&answer).await;
    let _ = output.flush().await;
}
