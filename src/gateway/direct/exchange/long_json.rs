//! A JSON answer that is too long for memory. It is repaired while it is forwarded, unless its beginning shows that it
//! needs no repair.

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::{Exchange, ORIGIN, drain};
use crate::progress::{Disposition, Fragment};
use crate::protocol::jsonrpc::{Kind, Scan};
use crate::protocol::unicode;
use crate::transport::clock::now;
use crate::transport::http::body::{Batch, BodyProducer};
use crate::transport::http::client::{UpstreamBody, UpstreamError};

impl Exchange {
    /// Whether an answer that begins with `head` can be forwarded unchanged, whatever follows.
    pub(crate) fn passes_unread(&mut self, head: &Bytes) -> bool {
        let mut scan = Scan::default();
        scan.feed(head);
        // An array or a notification in the place of an answer cannot be repaired in pieces.
        let may_be_answer = head.is_empty() || matches!(scan.kind(), Kind::Response | Kind::Opaque);
        let needs_nothing = |filter: &mut crate::progress::Filter| {
            filter.calls().open().is_empty() || filter.intake().needs_no_repair(&scan, head)
        };
        let is_readable = unicode::is_readable_so_far(head);
        self.observing
            || !may_be_answer
            || is_readable && self.filter.try_with(needs_nothing) != Some(false)
    }

    /// Returns the body for the client, made of `head` and the rest of the server's body.
    pub(crate) fn long_answer(self: Box<Self>, head: Bytes, rest: UpstreamBody) -> LongAnswer {
        LongAnswer {
            exchange: self,
            head: Some(head).filter(|head| !head.is_empty()),
            rest,
            out: Batch::default(),
            begun: false,
            is_message: true,
            over: false,
            is_broken: false,
        }
    }

    /// Writes the messages of the filter for the client to `out`, except for messages before the answer: a JSON body
    /// has only one message.
    ///
    /// Returns false if the answer breaks off.
    fn collect_answer(&mut self, out: &mut Batch) -> bool {
        let (mut ahead, mut goes_on) = (Batch::default(), true);
        drain(&mut self.filter, now(), |transmit| match transmit.part {
            Fragment::Whole => ahead.own(&transmit.payload),
            Fragment::Piece | Fragment::End => out.transmit(&transmit),
            Fragment::Broken => goes_on = false,
        });
        self.write_on_detour(ahead);
        self.note(None);
        goes_on
    }
}

/// A long answer while it is forwarded.
pub(crate) struct LongAnswer {
    exchange: Box<Exchange>,
    /// The beginning of the server's body, until it has been read.
    head: Option<Bytes>,
    rest: UpstreamBody,
    out: Batch,
    begun: bool,
    /// Whether the filter has recognised the text as a message.
    is_message: bool,
    over: bool,
    /// Whether the filter failed while it repaired the answer. The answer is then broken off, because its rest does not
    /// fit the part that the client has received.
    is_broken: bool,
}

impl LongAnswer {
    fn take(&mut self, piece: Bytes) {
        let (filter, text) = (&mut self.exchange.filter, 0..piece.len());
        if !std::mem::replace(&mut self.begun, true) {
            let fate = filter.begin_large(now(), ORIGIN, piece.clone(), text);
            self.is_message = !matches!(fate, Disposition::NotAMessage(_));
        } else if self.is_message {
            filter.large_piece(now(), ORIGIN, piece.clone(), text);
        }
        if !self.is_message {
            self.out.raw(&piece);
        }
        self.is_broken |= !self.exchange.collect_answer(&mut self.out);
    }

    fn end(&mut self) {
        self.over = true;
        if self.begun && self.is_message {
            self.exchange.filter.finish_large(now(), ORIGIN, None);
            self.is_broken |= !self.exchange.collect_answer(&mut self.out);
        }
        self.exchange.settle_all();
    }
}

impl BodyProducer for LongAnswer {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            if let Some(bytes) = self.out.take() {
                return Poll::Ready(Some(Ok(bytes)));
            }
            if std::mem::take(&mut self.is_broken) {
                self.over = true;
                self.exchange.settle_all();
                let why = "the answer could not be repaired to its end";
                return Poll::Ready(Some(Err(UpstreamError::BrokenOff(why))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            if let Some(head) = self.head.take() {
                self.take(head);
                continue;
            }
            match ready!(self.rest.poll_data(cx)) {
                Some(Ok(piece)) => self.take(piece),
                Some(Err(error)) => {
                    self.over = true;
                    self.exchange.settle_all();
                    return Poll::Ready(Some(Err(error)));
                }
                None => self.end(),
            }
        }
    }
}
