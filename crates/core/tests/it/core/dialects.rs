//! All built-in dialects, and some that a user describes.

use std::sync::Arc;

use bytes::Bytes;
use milepost_core::progress::dialect::{
    self, Count, CustomDialect, Dialect, Final, Pointer, TextSource,
};

/// Returns all built-in dialects, and two dialects as users describe them.
pub(crate) fn dialects() -> Vec<Dialect> {
    let pointer = |text: &str| Pointer::read(text).ok();
    let acme = CustomDialect {
        name: "acme".to_owned(),
        methods: vec!["acme/status".to_owned()],
        sources: Vec::new(),
        request_id: pointer("/params/id"),
        token: pointer("/params/job"),
        progress: pointer("/params/pct"),
        total: None,
        message: pointer("/params/text"),
        last: Some(Final {
            pointer: Pointer::read("/params/text#/state").unwrap(),
            equals: Bytes::from_static(b"\"done\""),
        }),
        scale: Count::Percent,
    };
    let pipeline = CustomDialect {
        name: "pipeline".to_owned(),
        methods: Vec::new(),
        sources: vec![TextSource::Stderr, TextSource::Log],
        request_id: None,
        token: None,
        progress: pointer("/job/pct"),
        total: None,
        message: pointer("/job/text"),
        last: None,
        scale: Count::default(),
    };
    let own = [acme, pipeline].map(|dialect| Dialect::Custom(Arc::new(dialect)));
    dialect::ALL.iter().chain(&own).cloned().collect()
}
