//! What speaks HTTP/1.1 to a server.

use crate::config::values::Word;

/// What speaks HTTP/1.1 to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpEngine {
    /// The library that speaks HTTP/2 too.
    Hyper,
    /// Milepost's own code, which holds less memory for a silent stream and does less work for a chunk.
    #[default]
    Milepost,
}

impl Word for HttpEngine {
    const WORDS: &'static [(&'static str, Self)] =
        &[("hyper", Self::Hyper), ("milepost", Self::Milepost)];
}
