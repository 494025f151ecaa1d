//! A recording as a single page for a browser: a row for each call, with the messages of both sides. The page loads
//! nothing, and its content security policy allows only its own script. Every byte of a recording is shown as text.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use litemap::LiteMap;
use ring::digest::{SHA256, digest};

use super::ExportText;
use crate::lab::recordings::calls::{
    RecordedCall, RecordedCalls, RecordedMessage, RecordedSide, RecordedWay,
};
use crate::observe::printable::{TextForm, printable};
use crate::observe::transcript::words;
use crate::progress::{Outcome, Verdict};

/// Maximum number of bytes of one message on the page. The page shows how many more there are; a HAR archive has them.
pub(super) const MESSAGE_MAX: usize = 64 << 10;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Writes the page, row by row.
pub(super) fn write(
    recording: &RecordedCalls,
    text: &mut ExportText,
    to: &mut impl Write,
) -> io::Result<()> {
    let name = escaped(&recording.path.file_name().unwrap_or_default().to_string_lossy());
    let (style, script) = (source(STYLE), source(SCRIPT));
    write!(
        to,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {style}; \
         script-src {script}; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{name}</h1>\n"
    )?;
    for line in head(recording) {
        writeln!(to, "<p>{}</p>", escaped(&line))?;
    }
    write!(
        to,
        "<div class=\"tools\" hidden>\n<input id=\"search\" type=\"search\" aria-label=\"Search in calls\" \
         placeholder=\"Search in calls\">\n<button id=\"open\">Open all</button>\n\
         <button id=\"close\">Close all</button>\n\
         <button id=\"failed\" aria-pressed=\"false\" hidden></button>\n<span id=\"found\" role=\"status\"></span>\n</div>\n\
         </header>\n<main>\n"
    )?;
    // The first call of a tool is expanded, as an example of what the page shows.
    let first = recording.calls.iter().position(|call| call.tool.is_some());
    for (at, call) in recording.calls.iter().enumerate() {
        let open = if Some(at) == first { " open" } else { "" };
        write_call(recording, (at + 1, call), open, text, to)?;
    }
    let others: Vec<&RecordedMessage> =
        recording.messages.iter().filter(|message| message.call.is_none()).collect();
    if !others.is_empty() {
        let count = others.len();
        write!(
            to,
            "<details>\n<summary><span></span><span></span><b>Messages of no call</b>\
             <span>{count}</span></summary>\n"
        )?;
        write_messages(others.into_iter(), Duration::ZERO, text, to)?;
        writeln!(to, "</details>")?;
    }
    writeln!(to, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>")
}

/// Returns the source of a style or script for the content security policy: the hash of its text.
fn source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

/// Returns a time as text.
fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

/// Returns the lines below the title.
fn head(recording: &RecordedCalls) -> Vec<String> {
    let begun = humantime::format_rfc3339_seconds(recording.time_of(Duration::ZERO));
    let about = if recording.is_begun_exact { "" } else { "about " };
    let calls = recording.calls.len();
    let place = match &recording.route {
        Some(route) => format!("milepost serve, route {route}"),
        None => "milepost wrap".to_owned(),
    };
    let version = recording.version.as_deref().unwrap_or("unknown");
    let mut lines = vec![format!(
        "{calls} call{}, {about}{begun}, {} long; {place}, version {version}",
        if calls == 1 { "" } else { "s" },
        seconds(recording.length),
    )];
    lines.extend(summary(recording));
    lines.extend(recording.remarks.iter().cloned());
    lines
}

/// Returns how many calls ended in which way, and the verdicts on the messages of the server.
fn summary(recording: &RecordedCalls) -> Vec<String> {
    let mut outcomes: LiteMap<&str, usize> = LiteMap::new();
    for call in &recording.calls {
        *outcomes.entry(call.outcome_name()).or_default() += 1;
    }
    let outcomes: Vec<String> =
        outcomes.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let messages = || recording.messages.iter();
    let heartbeats = messages().filter(|message| message.is_beat).count();
    let verdicts = || messages().filter_map(|message| message.verdict.as_ref());
    let counts = words::count(verdicts, heartbeats as u64);
    let outcomes = (!outcomes.is_empty()).then(|| format!("outcomes: {}", outcomes.join(", ")));
    outcomes.into_iter().chain(counts.lines().map(str::to_owned)).collect()
}

fn write_call(
    recording: &RecordedCalls,
    (number, call): (usize, &RecordedCall),
    open: &str,
    text: &mut ExportText,
    to: &mut impl Write,
) -> io::Result<()> {
    let [server, client] = [RecordedSide::Server, RecordedSide::Client]
        .map(|side| recording.reports(call, side).count());
    let beats = recording.messages_of(call).filter(|message| message.is_beat).count();
    let beats = match beats {
        0 => String::new(),
        beats => format!(", {beats} heartbeat{}", if beats == 1 { "" } else { "s" }),
    };
    let took = recording
        .answer(call, RecordedSide::Client)
        .map(|answer| answer.at.saturating_sub(call.at));
    let took = took.map_or_else(String::new, seconds);
    let is_good = matches!(
        call.outcome,
        Some(Outcome::Result | Outcome::Interim | Outcome::TaskEnded | Outcome::Settled)
    );
    let class = if is_good { "" } else { " class=\"bad\"" };
    let label = call.tool.as_deref().map_or(Cow::Borrowed(&*call.method), |tool| {
        Cow::Owned(format!("{tool} · {}", call.method))
    });
    let (label, outcome, at) = (escaped(&label), call.outcome_name(), seconds(call.at));
    write!(
        to,
        "<details{open}>\n<summary><span>{number}</span><span>{at}</span><b>{label}</b><span>{took}</span>\
         <span{class}>{outcome}</span><span>{server} from the server, {client} to the client{beats}</span></summary>\n"
    )?;
    write_messages(recording.messages_of(call), call.at, text, to)?;
    writeln!(to, "</details>")
}

/// Writes the messages in their order: the server's side on the left, the client's side on the right.
fn write_messages<'a>(
    messages: impl Iterator<Item = &'a RecordedMessage>,
    since: Duration,
    text: &mut ExportText,
    to: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        to,
        "<table>\n<thead><tr><th class=\"time\" scope=\"col\">Time</th><th scope=\"col\">Server</th>\
         <th scope=\"col\">Client</th></tr></thead>\n<tbody>"
    )?;
    for message in messages {
        let body = format!("{}<pre>{}</pre>", note(message), body(&text.show(&message.text)));
        let (server, client) = match message.way {
            RecordedWay::ToServer | RecordedWay::FromServer | RecordedWay::Stderr => (&*body, ""),
            RecordedWay::FromClient | RecordedWay::ToClient => ("", &*body),
        };
        let at = seconds(message.at.saturating_sub(since));
        writeln!(to, "<tr><td>{at}</td><td>{server}</td><td>{client}</td></tr>")?;
    }
    writeln!(to, "</tbody>\n</table>")
}

/// Returns the direction of a message, and the verdict on it.
fn note(message: &RecordedMessage) -> String {
    let way = match message.way {
        RecordedWay::FromClient => "sends",
        RecordedWay::ToServer => "gets instead",
        RecordedWay::FromServer => "sends",
        RecordedWay::ToClient => "gets",
        RecordedWay::Stderr => "standard error",
    };
    let (class, more) = match (message.verdict, message.is_beat) {
        (Some(verdict @ Verdict::Withheld(_)), _) => ("withheld", words::verdict_text(verdict)),
        (Some(verdict), _) => ("", words::verdict_text(verdict)),
        (None, true) => ("added", "heartbeat".to_owned()),
        (None, false) => ("", String::new()),
    };
    let space = if more.is_empty() { "" } else { ": " };
    format!("<p class=\"{class}\">{way}{space}{}</p>", escaped(&more))
}

/// Returns the text of a message, cut if it is long.
fn body(text: &str) -> String {
    if text.len() <= MESSAGE_MAX {
        return escaped(text);
    }
    let end = text.floor_char_boundary(MESSAGE_MAX);
    let (shown, rest) = text.split_at(end);
    format!("{}… {} bytes more", escaped(shown), rest.len())
}

/// Escapes a text for HTML. Characters that are invisible or move other text are escaped visibly.
fn escaped(text: &str) -> String {
    let form = if text.starts_with(['{', '[']) { TextForm::Json } else { TextForm::Plain };
    let mut out = String::with_capacity(text.len());
    for sign in printable(text, form).chars() {
        match sign {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            sign => out.push(sign),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_leave_its_element() {
        let text = escaped("</pre><script>\"'&\u{202e}\u{0}");
        assert!(!text.contains(['<', '>', '"', '\'', '\u{202e}', '\0']), "{text}");
    }

    #[test]
    fn what_is_long_is_cut_at_a_character() {
        let text = body(&"é".repeat(MESSAGE_MAX));
        assert!(text.ends_with(&format!("… {MESSAGE_MAX} bytes more")));
    }
}
