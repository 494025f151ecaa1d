//! The mailbox of a response: messages about its request from other streams of the session, and
//! cancellations by the client.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;

use bytes::Bytes;
use futures::task::AtomicWaker;

use crate::protocol::jsonrpc::Message;

/// Messages waiting in one mailbox. Further progress is dropped.
const MAIL_MAX: usize = 1024;

/// A message from one stream to another.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Progress of its request, received on another stream.
    Progress(Message),
    /// A message of the client that concerns it.
    Client(Message),
    /// The request has been answered on another stream.
    Settled(Message),
    /// The tasks that its requests have turned into are over.
    TasksOver,
    /// Something for the client that has no stream of its own to go on.
    Event(Bytes),
}

/// A bounded queue with one reader.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    queue: Mutex<VecDeque<Mail>>,
    /// Whether the mailbox may hold a message, so that a look costs nothing.
    filled: AtomicBool,
    /// Whether a reader has looked: a response that is not a stream needs no mail.
    read: AtomicBool,
    waker: AtomicWaker,
}

impl Mailbox {
    /// Adds mail; false if the mailbox is full and the mail was left out.
    pub(crate) fn put(&self, mail: Mail) -> bool {
        let Ok(mut queue) = self.queue.lock() else { return false };
        if queue.len() >= MAIL_MAX && matches!(mail, Mail::Progress(_) | Mail::Event(_)) {
            return false;
        }
        queue.push_back(mail);
        drop(queue);
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

    /// Whether a reader will take the mail.
    pub(crate) fn is_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Option<Mail> {
        if !self.filled.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.queue.lock().ok()?;
        let mail = queue.pop_front();
        if queue.is_empty() {
            self.filled.store(false, Ordering::Release);
        }
        mail
    }
}
