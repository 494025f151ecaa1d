//! The format of a log line: one line for each event, whatever names clients and servers have.
//!
//! Text of clients and servers appears in values only. In a text line a value is quoted unless it
//! is a plain word, and no character of a value steers a terminal or ends the line; no value is
//! longer than [`VALUE_MAX`].

use std::error::Error;
use std::fmt::{self, Debug, Write};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

// Every value goes through this file, also values in log lines of libraries, so that no code that
// logs has to remember it.
/// Bytes of one value in a log line. A longer value is cut; a tool's name may be megabytes long.
pub(super) const VALUE_MAX: usize = 4 << 10;

/// The values of a line of text.
#[derive(Debug)]
pub(super) struct PlainFields;

impl<'w> FormatFields<'w> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = PlainFieldVisitor { writer, is_first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct PlainFieldVisitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl PlainFieldVisitor<'_> {
    fn put(&mut self, field: &Field, text: &Cut, is_text: bool) {
        let gap = if std::mem::take(&mut self.is_first) { "" } else { " " };
        let more = if text.is_cut { "…" } else { "" };
        let text = &text.text;
        let written = match name(field) {
            "message" => {
                let shown = text.chars().try_for_each(|sign| match sign {
                    _ if is_plain(sign) || matches!(sign, ' ' | '"' | '=' | '\'' | '\\') => {
                        self.writer.write_char(sign)
                    }
                    _ => write!(self.writer, "{}", sign.escape_debug()),
                });
                shown.and_then(|()| self.writer.write_str(more))
            }
            name if is_text || text.is_empty() || !text.chars().all(is_plain) => {
                write!(self.writer, "{gap}{name}={text:?}{more}")
            }
            name => write!(self.writer, "{gap}{name}={text}{more}"),
        };
        self.result = self.result.and(written);
    }
}

/// Whether a character needs no quotes in a log line.
fn is_plain(sign: char) -> bool {
    !matches!(sign, ' ' | '"' | '=' | '\'' | '\\') && sign.escape_debug().len() == 1
}

impl Visit for PlainFieldVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, &Cut::of(format_args!("{value}")), true);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, &Cut::of(format_args!("{value}")), true);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, &Cut::of(format_args!("{value:?}")), false);
    }
}

/// A value as text, as far as there is room.
struct Cut {
    text: String,
    is_cut: bool,
}

impl Cut {
    fn of(value: fmt::Arguments<'_>) -> Self {
        let mut cut = Self { text: String::new(), is_cut: false };
        // A part that does not fit is left out, and the line says so.
        let _ = cut.write_fmt(value);
        cut
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

/// A line as one JSON object.
#[derive(Debug)]
pub(super) struct Json;

/// Members of an object, without its braces.
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
        // Signs that JSON allows as they are, and terminals do not.
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

/// A field's name without the prefix of raw identifiers.
fn name(field: &Field) -> &'static str {
    field.name().trim_start_matches("r#")
}
