//! The view of the demo: lines of two columns, and bars on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use bytes::Bytes;
use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::client::Progress;
use crate::protocol::json;
use crate::protocol::json::Members;
use crate::protocol::jsonrpc::Message;

/// The width of lines without a terminal, or with a terminal of unknown width.
const PLAIN_WIDTH: usize = 100;

/// Minimum width of the view. On a narrower terminal lines wrap.
const WIDTH_MIN: usize = 24;

/// Minimum width at which the time is shown.
const TIME_FROM: usize = 90;

/// Minimum width at which a bar is shown beside its message.
const BAR_FROM: usize = 60;

/// Maximum width of the right column.
const RIGHT_MAX: usize = 44;

/// Number of steps of a full bar.
const BAR_PARTS: u64 = 1000;

/// The view of the demo.
pub struct DemoView<'a> {
    output: ViewOutput<'a>,
}

enum ViewOutput<'a> {
    /// Writes lines of this width, without control sequences.
    Plain(Box<dyn Write + 'a>, usize),
    Live(Live),
}

struct Live {
    term: Term,
    color: bool,
    bars: MultiProgress,
    /// One bar for each call; the last belongs to the current call.
    calls: Vec<ProgressBar>,
}

/// The style of a piece of a line, for terminals with colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    Dim,
    Repaired,
    Added,
    Withheld,
}

/// One message, as the server sent it and as the client got it.
pub(super) struct ViewLine {
    /// The time since the call began.
    pub(super) at: Duration,
    pub(super) left: String,
    pub(super) mark: char,
    pub(super) right: String,
    pub(super) tone: Tone,
}

impl<'a> DemoView<'a> {
    /// Returns the view on standard output: live if that is a terminal.
    pub fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::plain(io::stdout());
        }
        let term = Term::stdout();
        if console::is_dumb() {
            let output = ViewOutput::Plain(Box::new(io::stdout()), width_of(&term));
            return Self { output };
        }
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let color = console::colors_enabled();
        Self { output: ViewOutput::Live(Live { term, color, bars, calls: Vec::new() }) }
    }

    /// Returns a view that writes lines without control sequences.
    pub fn plain(out: impl Write + 'a) -> Self {
        Self { output: ViewOutput::Plain(Box::new(out), PLAIN_WIDTH) }
    }

    /// Whether [`DemoView::tick`] changes the display.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.output, ViewOutput::Live(_))
    }

    /// Returns the usable width of a line.
    pub(super) fn width(&self) -> usize {
        let width = match &self.output {
            ViewOutput::Plain(_, width) => *width,
            ViewOutput::Live(live) => width_of(&live.term),
        };
        width.max(WIDTH_MIN)
    }

    /// Writes a text, wrapped at the width of the line. The lines after the first are indented by `indent`.
    pub(super) fn words(&mut self, tone: Tone, words: &str, indent: usize) -> io::Result<()> {
        let width = self.width();
        let mut line = String::new();
        for word in words.split(' ') {
            if length(&line) + 1 + length(word) > width && !line.trim().is_empty() {
                self.line(&[(tone, &line)])?;
                line = " ".repeat(indent);
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(&[(tone, &line)])
    }

    /// Writes the names of the two columns.
    pub(super) fn columns(&mut self) -> io::Result<()> {
        let columns = Columns::of(self.width());
        let (left, right) = (columns.left, columns.right);
        let left = format!("{}{:left$}  ", columns.indent(None), "server sent");
        self.line(&[(Tone::Dim, &left), (Tone::Dim, &cut("client got", right))])
    }

    /// Writes one message.
    pub(super) fn message(&mut self, line: &ViewLine) -> io::Result<()> {
        let columns = Columns::of(self.width());
        let left = cut(&line.left, columns.left);
        let gap = " ".repeat(columns.left - length(&left) + 2);
        let right = cut(&format!("{} {}", line.mark, line.right), columns.right);
        self.line(&[
            (Tone::Plain, &columns.indent(Some(line.at))),
            (Tone::Dim, &left),
            (Tone::Plain, &gap),
            (line.tone, &right),
        ])
    }

    /// Writes one line, which must fit into the width.
    pub(super) fn line(&mut self, pieces: &[(Tone, &str)]) -> io::Result<()> {
        match &mut self.output {
            ViewOutput::Plain(out, _) => {
                let line: String = pieces.iter().map(|(_, text)| *text).collect();
                writeln!(out, "{}", line.trim_end())
            }
            ViewOutput::Live(live) => {
                let paint = |(tone, text): &(Tone, &str)| live.paint(*tone, text);
                live.bars.println(pieces.iter().map(paint).collect::<String>())
            }
        }
    }

    /// Adds the bar of a call that begins.
    pub(super) fn begin(&mut self, tool: &'static str) {
        let ViewOutput::Live(live) = &mut self.output else { return };
        let bar = ProgressBar::new(BAR_PARTS).with_style(live.style("spinner")).with_prefix(tool);
        let bar = live.bars.add(bar.with_message("waiting"));
        bar.tick();
        live.calls.push(bar);
    }

    /// Shows progress that the client received.
    pub(super) fn progress(&self, progress: &Progress) {
        let Some((live, bar)) = self.bar() else { return };
        let number = |text: &str| text.parse::<f64>().ok();
        let part = progress.total.as_deref().and_then(number).zip(number(&progress.figure));
        bar.set_style(live.style(if part.is_some() { "bar" } else { "spinner" }));
        if let Some((total, figure)) = part.filter(|(total, _)| *total > 0.0) {
            bar.set_position(parts(figure / total));
        }
        bar.set_message(progress.to_string());
        bar.tick();
    }

    /// Stops the bar of the call, whose answer the client has.
    pub(super) fn end(&self, took: Duration) {
        let Some((_, bar)) = self.bar() else { return };
        bar.abandon_with_message(format!("answered after {:.1} s", took.as_secs_f64()));
    }

    /// Redraws the bars as time passes.
    pub(super) fn tick(&self) {
        if let Some((_, bar)) = self.bar()
            && !bar.is_finished()
        {
            bar.tick();
        }
    }

    /// Removes the bars.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        match &mut self.output {
            ViewOutput::Plain(out, _) => out.flush(),
            ViewOutput::Live(live) => {
                live.bars.clear()?;
                live.calls.drain(..).for_each(|bar| live.bars.remove(&bar));
                Ok(())
            }
        }
    }

    fn bar(&self) -> Option<(&Live, &ProgressBar)> {
        let ViewOutput::Live(live) = &self.output else { return None };
        live.calls.last().map(|bar| (live, bar))
    }
}

impl Live {
    /// Returns the style of a line with a `gauge`: `bar` or `spinner`.
    fn style(&self, gauge: &str) -> ProgressStyle {
        let color = if self.color { ".green" } else { "" };
        let template = if width_of(&self.term) < BAR_FROM {
            "{prefix:16} {wide_msg}".to_owned()
        } else {
            format!("{{prefix:16}} [{{{gauge}:20{color}}}] {{wide_msg}}")
        };
        let style = ProgressStyle::with_template(&template);
        style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ").tick_strings(
            &[
                "=                   ",
                "   =                ",
                "      =             ",
                "         =          ",
                "            =       ",
                "               =    ",
                "                  = ",
                "               =    ",
                "            =       ",
                "         =          ",
                "      =             ",
                "   =                ",
                // A call that has ended without a total has an even bar.
                "--------------------",
            ],
        )
    }

    fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.color => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Strong => 1,
            Tone::Dim => 2,
            Tone::Repaired => 32,
            Tone::Added => 36,
            Tone::Withheld => 33,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Returns the usable width. The last column stays free, because some terminals wrap when it is written.
fn width_of(term: &Term) -> usize {
    let columns = term.size_checked().map_or(PLAIN_WIDTH, |(_, columns)| columns.into());
    columns.saturating_sub(1)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
fn parts(fraction: f64) -> u64 {
    (fraction.clamp(0.0, 1.0) * BAR_PARTS as f64) as u64
}

/// How the width of a line is divided into columns.
struct Columns {
    time: bool,
    left: usize,
    right: usize,
}

impl Columns {
    fn of(width: usize) -> Self {
        let time = width >= TIME_FROM;
        let room = width - if time { 8 } else { 1 } - 2;
        let right = (room * 54 / 100).min(RIGHT_MAX);
        Self { time, left: room - right, right }
    }

    /// Returns the text before the left column.
    fn indent(&self, at: Option<Duration>) -> String {
        match at {
            _ if !self.time => " ".to_owned(),
            Some(at) => format!("{:5.1} s ", at.as_secs_f64()),
            None => format!("{:8}", ""),
        }
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Returns `text`, cut if it is longer than `room`.
fn cut(text: &str, room: usize) -> String {
    if length(text) <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the informative part of a server line, in the server's own spelling: its parameters or its result, with keys
/// without quotes, and only the text of content blocks.
pub(super) fn main_part(line: &Bytes) -> String {
    let message = Message::parse(line.clone());
    match (message.params(), message.result()) {
        (Some(params), _) => members(&params),
        (_, Some(result)) => format!("result:{{{}}}", members(&result)),
        _ => String::from_utf8_lossy(line).trim_end().to_owned(),
    }
}

fn members(object: &Bytes) -> String {
    let members = Members::new(object).map(|member| {
        let key = json::decode_str(&object[member.key]).unwrap_or_default().into_owned();
        let value = object.slice(member.value);
        let block = json::elements(&value).and_then(|(found, _)| {
            found.into_iter().find_map(|block| json::member(&value.slice(block), "text"))
        });
        match block {
            Some(text) => format!("{key}:[…{}…]", String::from_utf8_lossy(&text)),
            None => format!("{key}:{}", String::from_utf8_lossy(&value)),
        }
    });
    members.collect::<Vec<_>>().join(" ")
}
