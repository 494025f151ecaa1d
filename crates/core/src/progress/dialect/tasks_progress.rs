//! `notifications/tasks/progress`: progress of a task by its id.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/tasks/progress","params":{"taskId":"t1","progress":0.4,"currentStep":"m"}}
//! {"jsonrpc":"2.0","method":"notifications/tasks/completed","params":{"taskId":"t1"}}
//! ```
//! Seen in: documents of servers written before tasks were specified. Not on by default, because a later revision may
//! define these methods.

use crate::progress::dialect::Fields;
use crate::progress::dialect::fields::{clean, whole};
use crate::progress::dialect::report::{About, BuiltIn, Original, Report};
use crate::progress::verdict::Repair;
use crate::protocol::jsonrpc::Message;

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "tasks-progress",
    methods: &["notifications/tasks/progress", "notifications/tasks/completed"],
    default: false,
    original: Original::Replaced,
    bare_results: false,
    read,
};

fn read(method: &str, _: &Message, params: &Fields) -> Option<Report> {
    let mut report = Report::default();
    report.repairs.add(Repair::Dialect);
    report.about = About { task: Some(params.key(&["taskId"])?), ..About::default() };
    report.last = method.ends_with("/completed");
    report.figure = params.progress_of_total().map(|value| match value.value.value <= 1.0 {
        true => value.or_of(whole("1")),
        false => value,
    });
    let words = params.text(&["message", "currentStep", "status"]);
    report.message = words.and_then(|words| clean(&words));
    Some(report)
}
