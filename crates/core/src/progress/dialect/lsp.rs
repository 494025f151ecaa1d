//! `$/progress` of the Language Server Protocol.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"$/progress","params":{"token":"op_1","value":{"kind":"report","message":"m","percentage":40}}}
//! ```
//! Seen in: cargo and build servers whose authors came from LSP. Not on by default, because a client that uses LSP as
//! well as MCP may read these messages itself.

use crate::progress::dialect::Fields;
use crate::progress::dialect::fields::clean;
use crate::progress::dialect::report::{About, BuiltIn, Original, Report};
use crate::progress::verdict::Repair;
use crate::protocol::jsonrpc::Message;

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "lsp",
    methods: &["$/progress"],
    default: false,
    original: Original::Replaced,
    bare_results: false,
    read,
};

fn read(_: &str, _: &Message, params: &Fields) -> Option<Report> {
    let value = params.object("value")?;
    let mut report = Report::default();
    report.repairs.add(Repair::Dialect);
    report.about = About {
        token_text: params.first(&["token"]).cloned(),
        token: params.key(&["token"]),
        ..About::default()
    };
    report.figure = value.figure();
    report.message = value.text(&["message", "title"]).and_then(|words| clean(&words));
    report.last = value.text(&["kind"]).as_deref() == Some("end");
    Some(report)
}
