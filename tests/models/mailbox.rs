//! The mailbox of a response (`gateway/direct/mailbox.rs`).

use std::future::poll_fn;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use bytes::Bytes;
use loom::future::block_on;
use loom::thread;

use crate::gateway::direct::mailbox::{CancelNotice, Mail, Mailbox};

pub(crate) const MODELS: &[(&str, fn())] = &[
    ("mailbox: all mail of two writers is read", all_mail_is_read),
    ("mailbox: progress wakes a response that is no stream yet", progress_wakes),
    ("mailbox: the end of a cancellation wakes its reader", the_end_of_a_cancel_wakes),
    ("mailbox: bytes beyond the limit are never kept", the_limit_holds),
];

/// More than half of what one mailbox may keep.
static EVENT: LazyLock<Bytes> = LazyLock::new(|| vec![b' '; 5 << 20].into());

/// The next mail, as an exchange reads it.
async fn next(mailbox: &Mailbox) -> Mail {
    poll_fn(|cx| {
        mailbox.register(cx);
        mailbox.take().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn all_mail_is_read() {
    let mailbox = Arc::new(Mailbox::default());
    let writers = [Mail::Replaced, Mail::TasksOver].map(|mail| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || assert!(mailbox.put(mail)))
    });
    block_on(async {
        let both = (next(&mailbox).await, next(&mailbox).await);
        let either = matches!(both, (Mail::Replaced, Mail::TasksOver));
        assert!(either || matches!(both, (Mail::TasksOver, Mail::Replaced)));
    });
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(mailbox.take().is_none());
}

fn progress_wakes() {
    let mailbox = Arc::new(Mailbox::default());
    let own = Arc::clone(&mailbox);
    let writer = thread::spawn(move || {
        let report = milepost::protocol::jsonrpc::Message::parse(Bytes::from_static(b"{}"));
        own.put(Mail::TasksOver);
        own.put(Mail::Progress(report, milepost::progress::StreamId(1)))
    });
    block_on(poll_fn(|cx| mailbox.poll_progress(cx)));
    assert!(matches!(mailbox.take(), Some(Mail::TasksOver)));
    assert!(matches!(mailbox.take(), Some(Mail::Progress(..))));
    assert!(writer.join().unwrap());
}

fn the_end_of_a_cancel_wakes() {
    let mailbox = Arc::new(Mailbox::default());
    let notice = CancelNotice::new(Arc::clone(&mailbox));
    let canceller = thread::spawn(move || drop(notice));
    block_on(poll_fn(|cx| {
        mailbox.register(cx);
        if mailbox.is_cancelling() { Poll::Pending } else { Poll::Ready(()) }
    }));
    canceller.join().unwrap();
}

fn the_limit_holds() {
    let mailbox = Arc::new(Mailbox::default());
    let writers = [(); 2].map(|()| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || mailbox.put(Mail::Event(EVENT.clone())))
    });
    let early = usize::from(mailbox.take().is_some());
    let kept = writers.map(|writer| usize::from(writer.join().unwrap()));
    let late = std::iter::from_fn(|| mailbox.take()).count();
    assert!(late <= 1, "two events are more bytes than may wait");
    assert_eq!(kept.iter().sum::<usize>(), early + late, "mail that was taken is there");
}
