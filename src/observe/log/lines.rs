//! The format of log lines. Each event is one line, whatever names clients and servers have.
//!
//! Text of clients and servers occurs only in values. In a text line a value is quoted unless it is a plain word, no
//! character of a value controls a terminal or ends the line, and no value is longer than [`VALUE_MAX`]. Only the
//! colours of this file control a terminal, and only if the output is a terminal.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::progress::Outcome;

// Every value goes through this file, including those of libraries, so that no code that logs has to take care of it.
/// Maximum number of bytes of a value in a log line. A longer value is cut, because a tool's name may have megabytes.
pub(super) const VALUE_MAX: usize = 4 << 10;

/// Ends a colour.
const RESET: &str = "\u{1b}[0m";
const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const BLUE: &str = "\u{1b}[34m";
const PURPLE: &str = "\u{1b}[35m";

/// The field of a call's line whose value is coloured.
const OUTCOME: &str = "outcome";

/// The suffix of a field name for milliseconds. In a text line the suffix is left out, and the value is written as a
/// readable duration: `took_ms` becomes `took=3.0s`.
const MILLISECONDS: &str = "_ms";

/// A text line: the time, the level, the message, the values of the event, and the values of its spans. A value that
/// both have is written once, among the values of the spans.
#[derive(Debug)]
pub(super) struct Plain;

impl<S> FormatEvent<S, PlainFields> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, PlainFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = *event.metadata().level();
        paint(&mut writer, Some(DIM), format_args!("{time}"))?;
        writer.write_char(' ')?;
        paint(&mut writer, Some(color_of_level(level)), format_args!("{level:>5}"))?;
        writer.write_char(' ')?;
        let spans: Vec<_> = context.event_scope().into_iter().flat_map(Scope::from_root).collect();
        let of_spans = spans.iter().flat_map(|span| span.metadata().fields().iter());
        let of_spans = of_spans.map(|field| field.name()).collect();
        let mut visitor =
            PlainFieldVisitor { writer: writer.by_ref(), is_first: true, of_spans, result: Ok(()) };
        event.record(&mut visitor);
        visitor.result?;
        for span in &spans {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<PlainFields>>();
            if let Some(fields) = fields.filter(|fields| !fields.fields.is_empty()) {
                write!(writer, " {}", fields.fields)?;
            }
        }
        writer.write_char('\n')
    }
}

/// Writes text in a colour if the output is a terminal.
fn paint(writer: &mut Writer<'_>, color: Option<&str>, text: fmt::Arguments<'_>) -> fmt::Result {
    match color.filter(|_| writer.has_ansi_escapes()) {
        Some(color) => write!(writer, "{color}{text}{RESET}"),
        None => writer.write_fmt(text),
    }
}

fn color_of_level(level: Level) -> &'static str {
    match level {
        Level::ERROR => RED,
        Level::WARN => YELLOW,
        Level::INFO => GREEN,
        Level::DEBUG => BLUE,
        Level::TRACE => PURPLE,
    }
}

/// Returns the colour for the outcome of a call: green if the call ended as the server meant, red for an error, yellow
/// if the client or an operator gave it up.
fn color_of_outcome(outcome: &str) -> Option<&'static str> {
    let is = |known: &[Outcome]| known.iter().any(|known| known.name() == outcome);
    match () {
        () if is(&[Outcome::Result, Outcome::Interim, Outcome::TaskEnded, Outcome::Settled]) => {
            Some(GREEN)
        }
        () if is(&[
            Outcome::Error,
            Outcome::ToolError,
            Outcome::TimedOut,
            Outcome::ServerGone,
            Outcome::ProxyStopped,
        ]) =>
        {
            Some(RED)
        }
        () if is(&[Outcome::Cancelled, Outcome::CancelledByOperator, Outcome::ClientLeft]) => {
            Some(YELLOW)
        }
        () => None,
    }
}

/// Returns a duration as text: `340ms`, `3.0s`, `2m05s`, `1h02m`.
fn duration_text(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds}ms"),
        1..60 => format!("{seconds}.{}s", milliseconds % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Writes the values of a text line.
#[derive(Debug)]
pub(super) struct PlainFields;

impl<'w> FormatFields<'w> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor =
            PlainFieldVisitor { writer, is_first: true, of_spans: Vec::new(), result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct PlainFieldVisitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    /// The names of fields that the event's spans have. Fields of the event with these names are left out.
    of_spans: Vec<&'static str>,
    result: fmt::Result,
}

/// When a value is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Always,
    /// If a reader could not see where the value ends.
    IfNeeded,
}

impl PlainFieldVisitor<'_> {
    fn put(&mut self, name: &'static str, text: &Cut, quotes: Quotes) {
        if self.result.is_err() || self.of_spans.contains(&name) {
            return;
        }
        let gap = if std::mem::take(&mut self.is_first) { "" } else { " " };
        self.result = match name {
            "message" => self.write_message(text),
            name => write!(self.writer, "{gap}{name}=").and_then(|()| {
                self.write_value((name == OUTCOME).then_some(&*text.text), text, quotes)
            }),
        };
    }

    fn write_message(&mut self, text: &Cut) -> fmt::Result {
        for sign in text.text.chars() {
            if is_plain(sign) || matches!(sign, ' ' | '"' | '=' | '\'' | '\\') {
                self.writer.write_char(sign)?;
            } else {
                write!(self.writer, "{}", sign.escape_debug())?;
            }
        }
        self.writer.write_str(text.mark())
    }

    /// Writes a value. `outcome` is the outcome of a call if the value is one.
    fn write_value(&mut self, outcome: Option<&str>, text: &Cut, quotes: Quotes) -> fmt::Result {
        let color = outcome.and_then(color_of_outcome);
        let (value, mark) = (&text.text, text.mark());
        if quotes == Quotes::Always || value.is_empty() || !value.chars().all(is_plain) {
            paint(&mut self.writer, color, format_args!("{value:?}{mark}"))
        } else {
            paint(&mut self.writer, color, format_args!("{value}{mark}"))
        }
    }
}

/// Whether a character needs no quotes in a log line.
fn is_plain(sign: char) -> bool {
    !matches!(sign, ' ' | '"' | '=' | '\'' | '\\') && sign.escape_debug().len() == 1
}

impl Visit for PlainFieldVisitor<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match name(field).strip_suffix(MILLISECONDS) {
            Some(name) => {
                self.put(name, &Cut::of(format_args!("{}", duration_text(value))), Quotes::IfNeeded)
            }
            None => self.put(name(field), &Cut::of(format_args!("{value}")), Quotes::IfNeeded),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(name(field), &Cut::of(format_args!("{value}")), Quotes::Always);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(name(field), &Cut::of(format_args!("{value}")), Quotes::Always);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(name(field), &Cut::of(format_args!("{value:?}")), Quotes::IfNeeded);
    }
}

/// A value as text, up to [`VALUE_MAX`].
struct Cut {
    text: String,
    is_cut: bool,
}

impl Cut {
    fn of(value: fmt::Arguments<'_>) -> Self {
        let mut cut = Self { text: String::new(), is_cut: false };
        // Ignore the error: a part that does not fit is left out, and a mark in the line says so.
        let _ = cut.write_fmt(value);
        cut
    }

    /// Returns the mark after a value that was cut.
    fn mark(&self) -> &'static str {
        if self.is_cut { "…" } else { "" }
    }
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = VALUE_MAX.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        self.is_cut = true;
        Err(fmt::Error)
    }
}

/// A log line as one JSON object.
#[derive(Debug)]
pub(super) struct Json;

/// Writes the members of an object, without its braces.
impl<'w> FormatFields<'w> for Json {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = JsonFieldVisitor { writer, is_first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }

    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        if !current.fields.is_empty() {
            current.fields.push(',');
        }
        self.format_fields(current.as_writer(), fields)
    }
}

impl<S> FormatEvent<S, Self> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, Self>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let level = event.metadata().level();
        write!(writer, r#"{{"timestamp":"{timestamp}","level":"{level}","fields":{{"#)?;
        self.format_fields(writer.by_ref(), event)?;
        writer.write_char('}')?;
        let spans = context.event_scope().into_iter().flat_map(Scope::from_root);
        let spans: Vec<String> = spans
            .map(|span| {
                let extensions = span.extensions();
                let fields = extensions.get::<FormattedFields<Self>>();
                let fields = fields.map_or("", |fields| &fields.fields);
                let gap = if fields.is_empty() { "" } else { "," };
                format!(r#"{{{fields}{gap}"name":{}}}"#, Value::from(span.name()))
            })
            .collect();
        if let Some(innermost) = spans.last() {
            write!(writer, r#","span":{innermost},"spans":[{}]"#, spans.join(","))?;
        }
        writer.write_str("}\n")
    }
}

struct JsonFieldVisitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl JsonFieldVisitor<'_> {
    fn put(&mut self, field: &Field, value: &Value) {
        let gap = if std::mem::take(&mut self.is_first) { "" } else { "," };
        let written = write!(self.writer, "{gap}{}:", Value::from(name(field)));
        self.result = self.result.and(written);
        // Escape characters that JSON allows unescaped but terminals interpret.
        for sign in value.to_string().chars() {
            let written = match sign {
                ' '..='~' => self.writer.write_char(sign),
                _ if sign.escape_debug().len() == 1 => self.writer.write_char(sign),
                _ => {
                    let units = &mut [0; 2];
                    let mut units = sign.encode_utf16(units).iter();
                    units.try_for_each(|unit| write!(self.writer, "\\u{unit:04x}"))
                }
            };
            self.result = self.result.and(written);
        }
    }

    fn text(&mut self, field: &Field, mut cut: Cut) {
        if cut.is_cut {
            cut.text.push('…');
        }
        self.put(field, &cut.text.into());
    }
}

impl Visit for JsonFieldVisitor<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, &value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, &value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, &value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, &value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, Cut::of(format_args!("{value}")));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field, Cut::of(format_args!("{value}")));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, Cut::of(format_args!("{value:?}")));
    }
}

/// Returns a field's name without `r#`, the prefix of raw identifiers.
fn name(field: &Field) -> &'static str {
    field.name().trim_start_matches("r#")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// The lines that a test logs.
    #[derive(Clone, Default)]
    struct WrittenLines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for WrittenLines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for WrittenLines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// Returns the text lines that `act` logs, for a terminal or a file.
    fn written(is_terminal: bool, act: impl FnOnce()) -> String {
        let lines = WrittenLines::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(lines.clone())
            .with_ansi(is_terminal)
            .fmt_fields(PlainFields)
            .event_format(Plain);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
        let lines = lines.0.lock().unwrap().clone();
        String::from_utf8(lines).unwrap()
    }

    /// Returns the line that `act` logs, without its time.
    fn line(act: impl FnOnce()) -> String {
        written(false, act).split_once("Z ").unwrap().1.to_owned()
    }

    #[test]
    fn a_line_has_the_values_of_its_event_and_then_those_of_its_span() {
        let line = line(|| {
            let _span = tracing::info_span!("session", route = "/a", pid = 7).entered();
            tracing::info!(tool = "work", "call");
        });
        assert_eq!(line, " INFO call tool=\"work\" route=\"/a\" pid=7\n");
    }

    #[test]
    fn a_value_that_an_event_and_its_span_have_is_written_once() {
        let line = line(|| {
            let _span = tracing::info_span!("session", route = "/a").entered();
            tracing::warn!(route = "/a", tool = "work", "call");
        });
        assert_eq!(line, " WARN call tool=\"work\" route=\"/a\"\n");
    }

    #[test]
    fn a_field_that_is_none_is_left_out() {
        let line = line(|| tracing::debug!(tool = "work", sent = None::<u64>, "call"));
        assert_eq!(line, "DEBUG call tool=\"work\"\n");
    }

    #[test]
    fn milliseconds_are_durations_for_people() {
        let line = line(|| tracing::info!(took_ms = 3040_u64, left = 3_u64, "call"));
        assert_eq!(line, " INFO call took=3.0s left=3\n");
        let texts = [0, 999, 1000, 59_999, 60_000, 3_599_999, 3_720_000].map(duration_text);
        assert_eq!(texts, ["0ms", "999ms", "1.0s", "59.9s", "1m00s", "59m59s", "1h02m"]);
    }

    #[test]
    fn colours_are_written_to_a_terminal_only_and_never_by_a_value() {
        let act = || tracing::info!(outcome = "tool error", tool = "\u{1b}[31m", "call");
        let line = written(true, act);
        assert!(line.starts_with("\u{1b}[2m20"), "{line:?}");
        let rest = "Z\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m call \
                    outcome=\u{1b}[31m\"tool error\"\u{1b}[0m tool=\"\\u{1b}[31m\"\n";
        assert!(line.ends_with(rest), "{line:?}");
        assert!(!written(false, act).contains('\u{1b}'));
    }
}
