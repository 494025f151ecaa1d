//! A mock over standard input and output.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep_until;

use super::script::MockScript;
use super::session::{MockSession, MockTally, MockTerms};
use crate::observe::printable::{TextForm, printable};
use crate::protocol::jsonrpc::Message;
use crate::protocol::lines::{INSPECT_MAX, LineFrame, Lines};
use crate::transport::stdio::{ByteWriter, input, output};

/// Serves one client until it closes standard input or `stop` is ready. At the end of the input, everything that is
/// left for the open requests is sent without waits.
///
/// # Errors
/// If standard input cannot be read. A client that no longer reads is not an error.
pub(super) async fn serve(
    script: &Arc<MockScript>,
    terms: MockTerms,
    stop: impl Future<Output = ()>,
) -> io::Result<MockTally> {
    let (mut from, mut to) = (input(), output());
    let (mut buffer, mut lines) = (BytesMut::new(), Lines::new(INSPECT_MAX));
    let mut session = MockSession::new(script, terms, Instant::now());
    let mut stop = pin!(stop);
    let (mut tally, mut is_over) = (MockTally::default(), false);
    loop {
        if send(&mut session, &mut to).await.is_err() || (is_over && session.is_idle()) {
            return Ok(tally);
        }
        let due = session.next_due(Instant::now());
        tokio::select! {
            () = &mut stop => return Ok(tally),
            read = from.read_buf(&mut buffer), if !is_over => {
                is_over = read? == 0;
                let next = if is_over { Lines::finish } else { Lines::decode };
                while let Some(frame) = next(&mut lines, &mut buffer) {
                    if let LineFrame::Line(line) | LineFrame::Rest(line) = frame {
                        let line = line.slice(..line.trim_ascii_end().len());
                        session.receive(Instant::now(), &Message::parse(line), &mut tally);
                    }
                }
                if is_over {
                    session.hurry(Instant::now());
                }
            }
            () = async { sleep_until(due.unwrap_or_else(Instant::now).into()).await }, if due.is_some() => {}
        }
    }
}

/// Writes everything that is due.
async fn send(session: &mut MockSession, to: &mut ByteWriter) -> io::Result<()> {
    while let Some(said) = session.poll(Instant::now()) {
        if said.is_stderr {
            eprintln!("{}", printable(&String::from_utf8_lossy(&said.text), TextForm::Plain));
        } else {
            to.write_all(&said.text).await?;
            to.write_all(b"\n").await?;
        }
    }
    to.flush().await
}
