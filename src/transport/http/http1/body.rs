//! The body of an HTTP/1.1 response.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::link::{BodyPart, Http1Link};
use super::link_error::LinkError;

/// The body of a response. Dropping the body before its end closes its connection.
pub(crate) struct Http1Body {
    /// The connection; `None` once the response is complete or has failed.
    link: Option<Box<Http1Link>>,
    /// The bytes that have arrived and have not been taken.
    data: Bytes,
    trailers: Option<Box<HeaderMap>>,
    /// Bytes of the body that have not been taken, if the head declares the length.
    left: Option<u64>,
    /// Whether the whole body has been taken.
    is_over: bool,
}

impl Http1Body {
    /// Returns the body of a response whose head this connection has read, together with `data`.
    pub(crate) fn new(link: Box<Http1Link>, data: Bytes) -> Self {
        // `data` came with the head and belongs to the declared length too.
        let left = link.left().map(|left| left + data.len() as u64);
        let is_over = left == Some(0);
        Self { link: Some(link), data, trailers: None, left, is_over }
    }

    /// Takes the connection, once it can serve another request. Unread bytes of the body stay here.
    pub(crate) fn take_link(&mut self) -> Option<Box<Http1Link>> {
        // Only if the response is complete: otherwise more of its bytes follow on the connection.
        let mut link = self.link.take_if(|link| link.is_done())?;
        self.trailers = link.take_trailers();
        Some(link)
    }

    /// Whether the body is known to have ended.
    pub(crate) fn is_end(&self) -> bool {
        self.is_over
    }

    /// Returns the length of the rest of the body, if the head declares it.
    pub(crate) fn size(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }

    /// Ready with the next frame: all data of one read, or the trailers.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, LinkError>>> {
        if self.data.is_empty()
            && let Some(link) = &mut self.link
        {
            match ready!(link.poll_body(cx)) {
                Ok(BodyPart::Data(data)) => self.data = data,
                // The rest of a request that is still being sent is given up with the connection.
                Ok(BodyPart::End(trailers)) => self.trailers = trailers,
                Err(error) => {
                    (self.link, self.is_over) = (None, true);
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        let data = std::mem::take(&mut self.data);
        if !data.is_empty() {
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
            self.is_over = self.left == Some(0);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        self.is_over = true;
        let trailers = self.trailers.take();
        // Trailers come last, after all data has been read.
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(*trailers))))
    }
}
