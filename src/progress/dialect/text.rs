//! stub
use super::{Report, Source};
use crate::json;
use crate::progress::CallPolicy;
use crate::progress::verdict::Repair;
use bytes::Bytes;
pub(in crate::progress) fn read(words: &str, _s: Source, policy: &CallPolicy) -> Option<Report> {
    let mut report = Report {
        figure: policy.extract.clone().unwrap_or_default().figure(words),
        message: Some(json::quote(&policy.masks.mask(words))),
        ..Report::default()
    };
    report.repairs.add(Repair::Dialect);
    Some(report)
}
pub(in crate::progress) fn read_data(data: &Bytes, policy: &CallPolicy) -> Option<Report> {
    read(&json::words(data)?, Source::Log, policy)
}
