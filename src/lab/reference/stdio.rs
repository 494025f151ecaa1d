//! The reference server on standard streams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::reply::{ReplyPiece, ReplyStream};
use super::seen::SeenNotes;
use super::session::{ReferenceSession, ReferenceTerms};
use crate::protocol::lines::{INSPECT_MAX, LineFrame, Lines};
use crate::transport::stdio;

/// Serves one client on standard input and output, until the input ends. `silence`: the duration of the
/// tool `silent`. `is_modern`: 2026-07-28 is spoken too.
///
/// # Errors
/// If the output cannot be written.
pub async fn serve_stdio(notes: SeenNotes, silence: Duration, is_modern: bool) -> io::Result<()> {
    let notes = Arc::new(notes);
    let session = ReferenceSession::new(ReferenceTerms { notes, silence, is_modern });
    let (stream, mut pieces) = ReplyStream::new();
    let (mut input, mut output) = (stdio::input(), stdio::output());
    let (mut buffer, mut lines) = (BytesMut::new(), Lines::new(INSPECT_MAX));
    let mut calls = JoinSet::new();
    loop {
        while let Some(frame) = lines.decode(&mut buffer) {
            let LineFrame::Line(text) = frame else { continue };
            let Ok(message) = serde_json::from_slice::<Value>(&text) else { continue };
            if message["method"].is_string() && message.get("id").is_some() {
                let (session, stream) = (Arc::clone(&session), stream.clone());
                calls.spawn(async move { session.answer(&message, &stream).await });
            } else {
                session.take(&message);
            }
        }
        tokio::select! {
            read = input.read_buf(&mut buffer) => if !matches!(read, Ok(1..)) { break },
            Some(piece) = pieces.recv() => {
                let ReplyPiece::Messages(messages) = piece else { continue };
                output.write_all((messages.join("\n") + "\n").as_bytes()).await?;
                output.flush().await?;
            }
            Some(_) = calls.join_next() => {}
        }
    }
    output.shutdown().await
}
