//! The embedded legacy server (`upstream.demo = true`) over HTTP, inside this process: every POST
//! is one conversation, and every message of the server is one event.

pub mod server;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, DuplexStream, ReadBuf, duplex};

use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::lines;
use crate::protocol::lines::{INSPECT_MAX, Lines};
use crate::protocol::sse;
use crate::transport::http::client::InProcess;
use crate::transport::http::io::Io;

/// The silence of the silent tool.
const SILENCE: Duration = Duration::from_secs(20);

/// Room between the two ends of a connection inside the process.
const PIPE_BYTES: usize = 64 << 10;

type DemoAnswer = Response<Either<Full<Bytes>, DemoEvents>>;

/// Connections to the embedded server.
pub(crate) fn connector() -> InProcess {
    Arc::new(|| {
        let (ours, theirs) = duplex(PIPE_BYTES);
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(theirs), service_fn(answer));
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection to the embedded server has ended");
            }
        });
        async move { Ok(Box::new(ours) as Io) }.boxed()
    })
}

fn plain(status: StatusCode) -> DemoAnswer {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = status;
    response
}

async fn answer(request: Request<Incoming>) -> Result<DemoAnswer, Infallible> {
    if request.method() != Method::POST {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED));
    }
    let Ok(body) = Limited::new(request.into_body(), INSPECT_MAX).collect().await else {
        return Ok(plain(StatusCode::BAD_REQUEST));
    };
    let message = Message::parse(body.to_bytes());
    let (Kind::Request, Some(id)) = (message.kind(), message.id_key()) else {
        return Ok(plain(StatusCode::ACCEPTED));
    };
    let mut response = Response::new(Either::Right(DemoEvents::to(message.raw(), id)));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The server's messages about one request, as events, until its answer.
struct DemoEvents {
    serving: Option<BoxFuture<'static, ()>>,
    output: DuplexStream,
    buffer: BytesMut,
    lines: Lines,
    id: Key,
    answered: bool,
}

impl DemoEvents {
    fn to(request: &Bytes, id: Key) -> Self {
        let line: Vec<u8> = request
            .iter()
            .map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte })
            .chain([b'\n'])
            .collect();
        let (output, theirs) = duplex(PIPE_BYTES);
        let serving = async move {
            // The input stays open until the answer: a server over stdio ends with its input.
            let input = tokio::io::AsyncReadExt::chain(std::io::Cursor::new(line), WaitingCall);
            let _ = server::serve(input, theirs, SILENCE).await;
        };
        Self {
            serving: Some(serving.boxed()),
            output,
            buffer: BytesMut::new(),
            lines: Lines::new(INSPECT_MAX),
            id,
            answered: false,
        }
    }
}

/// An input on which nothing ever comes.
struct WaitingCall;

impl AsyncRead for WaitingCall {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

impl http_body::Body for DemoEvents {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(lines::LineFrame::Line(line)) = this.lines.decode(&mut this.buffer) {
                let message = Message::parse(line.slice(..line.trim_ascii_end().len()));
                if message.kind() == Kind::Noise {
                    continue;
                }
                this.answered |=
                    message.kind() == Kind::Response && message.id_key().as_ref() == Some(&this.id);
                return Poll::Ready(Some(Ok(Frame::data(sse::write(message.raw())))));
            }
            if this.answered {
                return Poll::Ready(None);
            }
            if let Some(serving) = &mut this.serving
                && serving.as_mut().poll(cx).is_ready()
            {
                this.serving = None;
            }
            let mut chunk = [0; 4096];
            let mut read = ReadBuf::new(&mut chunk);
            std::task::ready!(Pin::new(&mut this.output).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(None);
            }
            this.buffer.extend_from_slice(read.filled());
        }
    }
}
