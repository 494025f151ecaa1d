//! The mailbox of a response: messages about its request from other streams of the session, and
//! cancellations by the client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::progress::StreamId;
use crate::protocol::jsonrpc::Message;
use crate::transport::sync::{AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, Mutex};

/// Maximum number of messages that wait in one mailbox. Further progress is dropped.
const MAIL_MAX: usize = 1024;

/// Maximum number of messages that wait in one mailbox, including the news that end a response. Only a response that is
/// no longer read reaches it. Further messages are dropped.
const NEWS_MAX: usize = 2 * MAIL_MAX;

/// Bytes of messages waiting in one mailbox. Further progress is dropped.
const MAIL_BYTES_MAX: usize = 8 << 20;

/// Bytes waiting in one mailbox, including the news that end a response. Beyond the limit these are dropped too, as
/// beyond [`NEWS_MAX`].
const NEWS_BYTES_MAX: usize = 2 * MAIL_BYTES_MAX;

/// The limit of a mailbox as text for operators.
pub(crate) const MAILBOX_LIMIT: &str = "1,024 messages or 8 MiB for one response";

/// A message from one stream to another.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Progress of its request, received on this other stream.
    Progress(Message, StreamId),
    /// A log of its request, received on this other stream and forwarded there.
    Log(Message, StreamId),
    /// A message of the client that concerns it.
    Client(Message),
    /// A question of the server, or its withdrawal, received and forwarded on another stream.
    Question(Message),
    /// The request has been answered on another stream.
    Settled(Message),
    /// All requests have been answered on other streams.
    AllSettled,
    /// The answer to the request, received on another stream, because the server sends nothing in the response to the
    /// request.
    Answer(Message),
    /// The session has ended, and with it the stream on which the answer could come.
    SessionOver,
    /// The tasks that its requests have turned into are over.
    TasksOver,
    /// The client has reconnected on another stream.
    Replaced,
    /// An event for a client whose own stream has ended or is not open.
    Event(Bytes),
}

impl Mail {
    /// Whether a client that does not get this mail misses only a report or a log message.
    fn may_be_missed(&self) -> bool {
        matches!(self, Self::Progress(..) | Self::Log(..) | Self::Question(_) | Self::Event(_))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Progress(message, _)
            | Self::Log(message, _)
            | Self::Client(message)
            | Self::Question(message)
            | Self::Settled(message)
            | Self::Answer(message) => message.raw().len(),
            Self::Event(event) => event.len(),
            Self::AllSettled | Self::TasksOver | Self::Replaced | Self::SessionOver => 0,
        }
    }
}

/// The mail of a mailbox, in its order.
#[derive(Debug, Default)]
struct MailQueue {
    mail: VecDeque<Mail>,
    bytes: usize,
}

/// A bounded queue with one reader.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    queue: Mutex<MailQueue>,
    /// Whether the mailbox may hold a message, so that a look costs nothing.
    filled: AtomicBool,
    /// Whether a reader has taken mail: a response that is not a stream needs none.
    read: AtomicBool,
    /// The last value that the client has received, as bits.
    sent_value: AtomicU64,
    /// Cancellations of requests of the response that the server has not answered.
    cancels: AtomicUsize,
    /// Whether the server has asked the client something that a request of the response may be about.
    asked: AtomicBool,
    /// Whether answers from other streams belong into the response.
    takes_answers: AtomicBool,
    waker: AtomicWaker,
}

impl Mailbox {
    /// Adds mail; false if the mailbox is full and the mail was left out.
    pub(crate) fn put(&self, mail: Mail) -> bool {
        let Ok(mut queue) = self.queue.lock() else { return false };
        // Reports and logs are dropped first, so that the end of a response still has a place.
        let (most, most_bytes) = match mail.may_be_missed() {
            true => (MAIL_MAX, MAIL_BYTES_MAX),
            false => (NEWS_MAX, NEWS_BYTES_MAX),
        };
        let bytes = queue.bytes + mail.bytes();
        if queue.mail.len() >= most || bytes > most_bytes {
            return false;
        }
        queue.bytes = bytes;
        queue.mail.push_back(mail);
        drop(queue);
        // The flag is set after the message: a reader that sees the flag must find the message. A faster reader may
        // leave the flag set without a message, which costs one needless read.
        self.filled.store(true, Ordering::Release);
        self.waker.wake();
        true
    }

    /// Wakes the reader without having something for it.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Wakes the reader for mail from now on.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.read.store(true, Ordering::Relaxed);
        self.waker.register(cx.waker());
    }

    /// Completes when progress arrives, for a response that is not a stream yet.
    pub(crate) fn poll_progress(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        let is_progress = |queue: &MailQueue| {
            queue.mail.iter().any(|mail| matches!(mail, Mail::Progress(..) | Mail::Log(..)))
        };
        let filled = self.filled.load(Ordering::Acquire);
        if filled && self.queue.lock().is_ok_and(|queue| is_progress(&queue)) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Answers from other streams belong into the response from now on.
    pub(crate) fn take_answers(&self) {
        self.takes_answers.store(true, Ordering::Relaxed);
    }

    /// Whether answers from other streams belong into the response.
    pub(crate) fn takes_answers(&self) -> bool {
        self.takes_answers.load(Ordering::Relaxed)
    }

    /// Whether there may be mail.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Completes when there is mail.
    pub(crate) fn poll_mail(&self, cx: &Context<'_>) -> Poll<()> {
        self.register(cx);
        if self.is_filled() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Notes the last value of the response's only request that its client has received.
    pub(crate) fn set_told(&self, value: Option<f64>) {
        self.sent_value.store(value.unwrap_or_default().to_bits(), Ordering::Relaxed);
    }

    /// Returns the last value that the client has received; `None` if it is 0 or missing.
    pub(crate) fn sent_value(&self) -> Option<f64> {
        Some(f64::from_bits(self.sent_value.load(Ordering::Relaxed))).filter(|value| *value != 0.0)
    }

    /// Whether the client is cancelling a request of the response.
    pub(crate) fn is_cancelling(&self) -> bool {
        self.cancels.load(Ordering::Relaxed) > 0
    }

    /// The answers of the client to requests of the server concern the response from now on.
    pub(crate) fn mark_asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether an answer of the client to a request of the server may concern the response.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether a reader will take the mail.
    pub(crate) fn is_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Option<Mail> {
        if !self.filled.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.queue.lock().ok()?;
        let mail = queue.mail.pop_front();
        queue.bytes -= mail.as_ref().map_or(0, Mail::bytes);
        // Under the lock, because a message that is added at this moment sets the flag again.
        if queue.mail.is_empty() {
            self.filled.store(false, Ordering::Release);
        }
        mail
    }
}

/// A cancellation on its way to the server, of a request of this response.
pub(crate) struct CancelNotice {
    mailbox: Arc<Mailbox>,
}

impl CancelNotice {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        mailbox.cancels.fetch_add(1, Ordering::Relaxed);
        Self { mailbox }
    }
}

impl Drop for CancelNotice {
    fn drop(&mut self) {
        self.mailbox.cancels.fetch_sub(1, Ordering::Relaxed);
        self.mailbox.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Message {
        Message::parse(Bytes::from(vec![b' '; bytes]))
    }

    #[test]
    fn mail_that_nobody_takes_has_a_limit_in_messages_and_in_bytes() {
        let fill = |bytes: usize, mail: &dyn Fn(Message) -> Mail| {
            let mailbox = Mailbox::default();
            let count = (0..9999).take_while(|_| mailbox.put(mail(message(bytes)))).count();
            // Mail that is taken makes room for as much.
            assert!(mailbox.take().is_some() && mailbox.put(mail(message(bytes))));
            assert!(!mailbox.put(mail(message(bytes))));
            count
        };
        let progress = |message| Mail::Progress(message, StreamId(1));
        assert_eq!(fill(10, &progress), MAIL_MAX);
        assert_eq!(fill(1 << 20, &progress), MAIL_BYTES_MAX >> 20);
        assert_eq!(fill(10, &Mail::Settled), NEWS_MAX);
        assert_eq!(fill(1 << 20, &Mail::Settled), NEWS_BYTES_MAX >> 20);
    }
}
