//! Reads text of a server that is not meant as progress: its log, its standard error, and text between its messages. Of
//! a structured log line the members are read, of any other line the text.
//!
//! ```json
//! {"level":"info","time":1750000000000,"pid":1,"hostname":"h","component":"MCP-Stdio","tool":"memory-bank","requestId":"u","progressData":{"status":"in_progress","message":"Creating repository...","percent":40},"msg":"Progress notification (stdio no-op)"}
//! {"level":"info","ts":1750000000.1,"caller":"x/y.go:1","msg":"indexing","current":4,"total":9}
//! {"event":"indexing","timestamp":"2025-06-15T12:00:00Z","level":"info","progress":{"step":4,"total":9}}
//! ```
//! Seen in: KuzuMem-MCP on standard error (pino, first form), servers in Go (zap, second), in Python
//! (structlog, third; python-json-logger has `message`), winston and bunyan.

use bytes::Bytes;

use crate::progress::dialect::report::{Report, TextSource};
use crate::progress::dialect::{Dialect, Fields};
use crate::progress::one_line::one_line;
use crate::progress::policy::CallPolicy;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repair;
use crate::protocol::{json, terminal};

/// Names of members of a structured line whose objects contain the progress.
const INSIDE: [&str; 6] = ["progressData", "progress", "data", "fields", "payload", "params"];

/// Names of members that contain the message of a structured line.
const WORDS: [&str; 4] = ["msg", "message", "event", "text"];

/// Reads a line from a source; `None` if the line contains no text.
pub(in crate::progress) fn read(
    source: TextSource,
    words: &str,
    policy: &CallPolicy,
) -> Option<Report> {
    let trimmed = words.trim();
    if trimmed.starts_with('{') && trimmed.ends_with('}') {
        let text = Bytes::copy_from_slice(trimmed.as_bytes());
        if let Some(fields) = Fields::read(&text) {
            return read_object(source, &text, &fields, policy);
        }
    }
    read_words(trimmed, policy)
}

/// Reads the `data` of a log notification: an object or a string. `None` for other JSON values.
pub(in crate::progress) fn read_json(
    source: TextSource,
    data: &Bytes,
    policy: &CallPolicy,
) -> Option<Report> {
    if let Some(words) = json::decode_str(data) {
        return read(source, &words, policy);
    }
    let fields = Fields::read(data)?;
    read_object(source, data, &fields, policy)
}

fn read_object(
    source: TextSource,
    text: &Bytes,
    fields: &Fields,
    policy: &CallPolicy,
) -> Option<Report> {
    let own = policy.dialects.iter().filter_map(|dialect| match dialect {
        Dialect::Custom(own) if own.sources.contains(&source) => own.read(text),
        _ => None,
    });
    let own = own.filter(|report| report.message.is_some() || report.figure.is_some());
    if let Some(mut report) = own.into_iter().next() {
        let words = report.message.as_ref().and_then(|message| json::decode_str(message));
        report.message = words.and_then(|words| quoted_line(&words, policy));
        return Some(report);
    }
    let inside: Vec<Fields> = INSIDE.iter().filter_map(|name| fields.object(name)).collect();
    let words = fields
        .object("progressData")
        .and_then(|data| data.text(&["message", "status"]))
        .or_else(|| fields.text(&WORDS))
        .or_else(|| inside.iter().find_map(|inner| inner.text(&WORDS)));
    let message = words.as_deref().and_then(|words| quoted_line(words, policy));
    let figure = figure(fields)
        .or_else(|| inside.iter().find_map(figure))
        .or_else(|| policy.extract.figure(words.as_deref()?));
    report(message, figure)
}

fn read_words(words: &str, policy: &CallPolicy) -> Option<Report> {
    let message = quoted_line(words, policy)?;
    report(Some(message), policy.extract.figure(words))
}

fn report(message: Option<Bytes>, figure: Option<ProgressValue>) -> Option<Report> {
    if message.is_none() && figure.is_none() {
        return None;
    }
    let mut report = Report { message, figure, ..Report::default() };
    report.repairs.add(Repair::Dialect);
    Some(report)
}

/// Returns the value in the members of an object.
fn figure(fields: &Fields) -> Option<ProgressValue> {
    fields.figure().or_else(|| fields.progress_of_total().map(ProgressValue::within_total))
}

/// Returns a short text on one line as a JSON string, with secrets masked; `None` if it consists only of symbols.
fn quoted_line(words: &str, policy: &CallPolicy) -> Option<Bytes> {
    // Control sequences are removed, and characters that change the text direction, because they could hide what a
    // message really says.
    let shown = terminal::plain(words);
    let shown = shown.trim();
    let tells = shown.chars().any(char::is_alphanumeric);
    // Masked before the text is cut, because a part of a secret may not be recognised as a secret.
    tells.then(|| json::quote(&one_line(&policy.masks.mask(shown), "")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::progress::dialect::{CustomDialect, Pointer};

    /// Shows a report as `progress/total "message"`; `-` if there is none.
    fn shown(report: Option<Report>) -> String {
        let Some(Report { figure, message, repairs, .. }) = report else { return "-".to_owned() };
        assert!(repairs.iter().eq([Repair::Dialect]));
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let total = |figure: &ProgressValue| {
            figure.total.clone().map(|total| "/".to_owned() + &text(total.text))
        };
        let figure = figure
            .map(|figure| text(figure.value.text.clone()) + &total(&figure).unwrap_or_default());
        figure.into_iter().chain(message.map(text)).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(shown(read(TextSource::Stderr, line, &CallPolicy::default())), expected);
    }

    #[test]
    fn structured_lines_are_read_by_their_members() {
        check(
            r#"{"level":"info","time":1750000000000,"pid":1,"hostname":"h","component":"MCP-Stdio","tool":"memory-bank","requestId":"u","progressData":{"status":"in_progress","message":"Creating repository...","percent":40},"msg":"Progress notification (stdio no-op)"}"#,
            r#"40/100 "Creating repository...""#,
        );
        check(
            r#"{"progressData":{"status":"in_progress","percent":20}}"#,
            r#"20/100 "in_progress""#,
        );
        check(
            r#"{"name":"a","v":0,"pid":1,"msg":"indexed 3/9 files"}"#,
            r#"3/9 "indexed 3/9 files""#,
        );
        check(
            r#"{"level":"info","ts":1.5,"msg":"indexing","current":4,"total":9}"#,
            r#"4/9 "indexing""#,
        );
        check(
            r#"{"event":"indexing","timestamp":"2025-06-15T12:00:00Z","progress":{"step":4,"total":9}}"#,
            r#"4/9 "indexing""#,
        );
        check(r#"{"message":"m","progress":0.5,"total":2}"#, r#"0.5/2 "m""#);
        check(r#"{"message":"m","progress":5,"total":2}"#, r#"5 "m""#);
        check(r#"{"data":{"progress":1,"total":3,"message":"m"}}"#, r#"1/3 "m""#);
        check(r#"{"percent":40}"#, "40/100");
        check(r#"  {"text":"a\u001b[1mb\nc"}  "#, r#""ab c""#);
    }

    #[test]
    fn what_says_nothing_is_no_report() {
        for line in [
            "",
            "-----",
            "... |/-\\ ...",
            r#"{"level":"info","time":1750000000000,"pid":1}"#,
            r#"{"level":30,"hostname":"web-1"}"#,
            r#"{"msg":"---"}"#,
            "{}",
        ] {
            check(line, "-");
        }
    }

    #[test]
    fn any_other_line_is_words() {
        check("  Indexing 3 of 7  ", r#"3/7 "Indexing 3 of 7""#);
        check("ready", r#""ready""#);
        check(r#"{"msg": "not whole"#, r#""{\"msg\": \"not whole""#);
        check("{not json}", r#""{not json}""#);
        check("password=hunter2", r#""password=***""#);
        let long = shown(read(TextSource::Log, &"wort ".repeat(500), &CallPolicy::default()));
        assert_eq!(long.chars().count(), crate::progress::one_line::WORDS_MAX + 2);
    }

    #[test]
    fn the_data_of_a_log_notification_is_an_object_or_words() {
        for (data, expected) in [
            (r#"{"progress":1,"total":3,"message":"m"}"#, r#"1/3 "m""#),
            (r#""step 3/7""#, r#"3/7 "step 3/7""#),
            (r#""{\"msg\":\"m\",\"percent\":5}""#, r#"5/100 "m""#),
            ("17", "-"),
            ("null", "-"),
            (r#"["a"]"#, "-"),
        ] {
            let data = Bytes::from_static(data.as_bytes());
            let found = read_json(TextSource::Log, &data, &CallPolicy::default());
            assert_eq!(shown(found), expected, "{data:?}");
        }
    }

    #[test]
    fn a_dialect_of_a_route_comes_before_ours_where_it_finds_anything() {
        let pointer = |text| Some(Pointer::read(text).unwrap());
        let own = CustomDialect {
            name: "acme".to_owned(),
            methods: Vec::new(),
            sources: vec![TextSource::Stderr],
            request_id: None,
            token: None,
            progress: pointer("/pct"),
            total: None,
            message: pointer("/what"),
            last: None,
            scale: crate::progress::dialect::Count::Percent,
        };
        let policy =
            CallPolicy { dialects: vec![Dialect::Custom(Arc::new(own))], ..CallPolicy::default() };
        for (source, line, expected) in [
            (TextSource::Stderr, r#"{"pct":7,"what":"w\nx","msg":"m"}"#, r#"7/100 "w x""#),
            (TextSource::Stderr, r#"{"msg":"m"}"#, r#""m""#),
            (TextSource::Stderr, "plain", r#""plain""#),
            (TextSource::Log, r#"{"pct":7,"what":"w","msg":"m"}"#, r#""m""#),
        ] {
            assert_eq!(shown(read(source, line, &policy)), expected, "{line}");
        }
    }
}
