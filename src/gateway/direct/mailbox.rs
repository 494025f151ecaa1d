//! The mailbox of a response: messages about its requests from other streams of the session, and cancellations by the
//! client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::progress::StreamId;
use crate::protocol::jsonrpc::Message;
use crate::transport::sync::{AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, Mutex};

/// Limit of the messages in one mailbox. Beyond it progress is dropped.
const MAIL_MAX: usize = 1024;

/// Limit of the messages in one mailbox, with those that end a response. Only a response that is no longer read reaches
/// it; further messages are then dropped.
const NEWS_MAX: usize = 2 * MAIL_MAX;

/// Limit of the bytes in one mailbox. Beyond it progress is dropped.
const MAIL_BYTES_MAX: usize = 8 << 20;

/// Limit of the bytes in one mailbox, with messages that end a response. Beyond it all messages are dropped, as beyond
/// [`NEWS_MAX`].
const NEWS_BYTES_MAX: usize = 2 * MAIL_BYTES_MAX;

/// The limit of a mailbox as text, for operators.
pub(crate) const MAILBOX_LIMIT: &str = "1,024 messages or 8 MiB for one response";

/// A message from one stream to the response of another.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Progress of a request of the response, received on the stream with this number.
    Progress(Message, StreamId),
    /// A log message of a request of the response, received and forwarded on the stream with this number.
    Log(Message, StreamId),
    /// A message of the client about a request of the response, such as a cancellation.
    Client(Message),
    /// A request of the server to the client, or its cancellation, received and forwarded on another stream.
    Question(Message),
    /// A request of the response has been answered on another stream.
    Settled(Message),
    /// All requests of the response have been answered on other streams.
    AllSettled,
    /// The answer to a request of the response, received on another stream, because the server sends nothing in the
    /// response.
    Answer(Message),
    /// The session has ended, and with it the stream on which an answer could have come.
    SessionOver,
    /// The tasks that requests of the response have become are over.
    TasksOver,
    /// The client of the response has reconnected on another stream.
    Replaced,
    /// An event for a client whose own stream has ended or is not open.
    Event(Bytes),
}

impl Mail {
    /// Whether a client can do without this mail, because it is only progress, a log message or about a question.
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

/// The messages of a mailbox, in their order.
#[derive(Debug, Default)]
struct MailQueue {
    mail: VecDeque<Mail>,
    bytes: usize,
}

/// A bounded queue of messages for one response, its only reader.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    queue: Mutex<MailQueue>,
    /// Whether the mailbox may contain a message. Checked first, because it costs less than the lock.
    filled: AtomicBool,
    /// Whether a reader has taken mail. A response that is not a stream takes none.
    read: AtomicBool,
    /// The last progress value that the client has received, as bits.
    sent_value: AtomicU64,
    /// Number of cancellations of the response's requests to which the server has not reacted yet.
    cancels: AtomicUsize,
    /// Whether the server has asked the client something, perhaps because of a request of the response.
    asked: AtomicBool,
    /// Whether answers from other streams belong in the response.
    takes_answers: AtomicBool,
    waker: AtomicWaker,
}

impl Mailbox {
    /// Adds mail. Returns false if the mailbox is full and the mail was dropped.
    pub(crate) fn put(&self, mail: Mail) -> bool {
        let Ok(mut queue) = self.queue.lock() else { return false };
        // Reports and logs have the lower limit, so that the end of a response still has room.
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
        // The flag is set after the message, so that a reader that sees the flag finds the message. A faster reader may
        // leave the flag set without a message, which costs one needless read.
        self.filled.store(true, Ordering::Release);
        self.waker.wake();
        true
    }

    /// Wakes the reader although there is no mail for it.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Registers the reader's task, which new mail wakes.
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

    /// Notes that answers from other streams belong in the response from now on.
    pub(crate) fn take_answers(&self) {
        self.takes_answers.store(true, Ordering::Relaxed);
    }

    /// Whether answers from other streams belong in the response.
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

    /// Notes the last progress value of the response's only request that its client has received.
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

    /// Notes that the server has asked the client something, so that the response gets the client's answers.
    pub(crate) fn mark_asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether the response needs an answer of the client to a request of the server.
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

/// Counts a cancellation of a request of this response, while it is on its way to the server.
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
            // Mail that is taken makes room for the same number of bytes.
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
