//! The drawing of `milepost top`.

use std::iter;
use std::time::{Duration, Instant};

use console::Style;

use super::filter::CallTrouble;
use super::lines::{TopLine, TopSpan};
use super::row::TopRow;
use super::screen::{OpenedCall, TopScreen, TopView};
use super::style::Styles;

/// Width of a progress bar, in columns.
const BAR: usize = 10;

/// Minimum width of the screen at which the table shows the client and the changes.
const WIDE: usize = 110;

/// Width of the column with Milepost's changes, in which no number is cut.
const CHANGES: usize = 16;

/// Width of the column with the time.
const TIME: usize = 8;

/// Width of the space between two columns of the table.
const GAP: usize = 2;

/// Width of the help.
const HELP: usize = 92;

/// For a call without a text, the silence of its server is shown after this time.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// Minimum width of the column with the texts of calls.
const WORDS_MIN: usize = 20;

/// The keys that the help (`?`) lists.
const KEYS: [(&str, &str); 15] = [
    ("j k ↓ ↑", "the next call, the one before"),
    ("g G", "the first, the last"),
    ("Enter", "the messages of a call, side by side"),
    ("Esc", "back; in the table: all calls again"),
    ("/", "only calls with these words: tool, server, client, message, outcome, changes"),
    ("f", "only calls that have failed; again: only silent calls; again: all"),
    ("s", "sorts by time, tool, server, changes, and as before"),
    ("t", "also requests that call no tool"),
    ("o", "only calls in flight"),
    ("x", "cancels the call, after a question"),
    ("p", "pause: nothing moves until p"),
    ("?", "this help"),
    ("q", "the end; in a call: back"),
    ("", ""),
    ("", "press any key"),
];

/// The keys at the foot of the table, the most useful first; the last two are shown at any width.
const TABLE_KEYS: [&str; 9] = [
    "Enter open",
    "/ words",
    "f failed, silent",
    "s sort",
    "x cancel",
    "o in flight",
    "t all requests",
    "? help",
    "q quit",
];

/// The keys at the foot of a table with some of the calls, as [`TABLE_KEYS`].
const FILTER_KEYS: [&str; 7] =
    ["Esc clears", "Enter open", "s sort", "x cancel", "p pause", "? help", "q quit"];

/// The keys at the foot of a call, as [`TABLE_KEYS`].
const CALL_KEYS: [&str; 8] =
    ["Esc back", "j/k scroll", "g first", "G newest", "x cancel", "p pause", "? help", "q back"];

/// The title of the column with the texts of calls.
const WORDS: &str = "MESSAGE";

/// A column of the table.
struct TopColumn {
    name: &'static str,
    /// The width of the column. If it is 0, the column gets a share of the width that the other columns leave.
    width: usize,
    share: usize,
    only_wide: bool,
}

const fn column(name: &'static str, width: usize, share: usize) -> TopColumn {
    TopColumn { name, width, share, only_wide: false }
}

impl TopColumn {
    const fn only_wide(self) -> Self {
        Self { only_wide: true, ..self }
    }
}

const COLUMNS: [TopColumn; 8] = [
    column("", 1, 0),
    column("TOOL", 0, 2),
    column("SERVER", 0, 2),
    column("CLIENT", 0, 2).only_wide(),
    column("PROGRESS", 26, 0),
    column(WORDS, 0, 3),
    column("CHANGES", CHANGES, 0).only_wide(),
    column("TIME", TIME, 0),
];

/// Returns the lines of a screen of this size.
pub(super) fn draw(
    screen: &mut TopScreen,
    (width, height): (usize, usize),
    now: Instant,
) -> Vec<TopLine> {
    let styles = Styles::new(screen.colours);
    let room = height.saturating_sub(2);
    let head = draw_head(screen, &styles, now);
    let (mut body, foot) = match &mut screen.view {
        TopView::Table => {
            (draw_table(screen, width, room, &styles, now), draw_table_foot(screen, width, &styles))
        }
        TopView::Call(opened) => {
            let row = screen.calls.row(&opened.key, now);
            let keys = keys_within(width, &CALL_KEYS);
            let body = draw_call(width, room, opened, row.as_ref(), &styles);
            (body, TopLine::new(keys, &styles.dim))
        }
    };
    let foot = draw_question(screen, &styles).unwrap_or(foot);
    body.resize(room, TopLine::default());
    let mut lines = [vec![head], body, vec![foot]].concat();
    if screen.has_help {
        lay_help(&mut lines, width, &styles);
    }
    lines.truncate(height);
    lines.into_iter().map(|line| line.cut(width)).collect()
}

fn draw_head(screen: &TopScreen, styles: &Styles, now: Instant) -> TopLine {
    let rows = screen.rows(now);
    let open = rows.iter().filter(|row| row.is_open()).count();
    let servers = screen.calls.running().len();
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let troubled = |is: fn(&TopRow) -> bool, name: &str| {
        let count = rows.iter().filter(|row| is(row)).count();
        let text = if count > 0 { format!(" ({count} {name})") } else { String::new() };
        TopSpan::new(text, &styles.bad)
    };
    let mut spans = vec![
        TopSpan::new("milepost top", &styles.bold),
        TopSpan::plain(format!(
            "  {}, {}",
            count(servers, "process", "processes"),
            count(open, "call in flight", "calls in flight"),
        )),
        troubled(TopRow::is_silent, "silent"),
        TopSpan::plain(format!(", {} ended", rows.len() - open)),
        troubled(TopRow::has_failed, "failed"),
    ];
    if let Some(order) = screen.filter.order.name() {
        spans.push(TopSpan::new(format!("  sorted by {order}"), &styles.dim));
    }
    if let Some((_, since)) = &screen.paused {
        let ago = spell(now.saturating_duration_since(*since));
        spans.push(TopSpan::new(format!("  PAUSED {ago} ago, p goes on"), &styles.bad));
    }
    if let Some(trouble) = screen.calls.trouble() {
        spans.push(TopSpan::new(format!("  {}", one_line(&trouble)), &styles.bad));
    }
    TopLine::from(spans)
}

fn draw_table(
    screen: &TopScreen,
    width: usize,
    height: usize,
    styles: &Styles,
    now: Instant,
) -> Vec<TopLine> {
    let rows = screen.rows(now);
    let Some(chosen) = screen.place(&rows) else {
        let text = nothing(screen);
        return text.lines().map(|line| TopLine::plain(line).in_middle(width)).collect();
    };
    let columns: Vec<TopColumn> =
        COLUMNS.into_iter().filter(|column| !column.only_wide || width >= WIDE).collect();
    let names = columns.iter().map(|column| TopLine::new(column.name, &styles.dim)).collect();
    let shown = height.saturating_sub(1);
    let first = (chosen + 1).saturating_sub(shown);
    let cells = |row| columns.iter().map(|column| cell(column.name, row, styles)).collect();
    let table: Vec<Vec<TopLine>> =
        iter::once(names).chain(rows.iter().skip(first).take(shown).map(cells)).collect();
    let widths = widths(&columns, &table, width);
    let lines = table.into_iter().map(|cells| side_by_side(cells, &widths).at_left(width));
    let at_chosen = chosen - first + 1;
    let mark = |(at, line): (usize, TopLine)| if at == at_chosen { line.reversed() } else { line };
    lines.enumerate().map(mark).collect()
}

/// Returns the widths of these columns, which fill the whole width: each column gets the width that its cells need, and
/// the text of calls gets the rest. If the width does not suffice, each column gets a share, and passes the unused part
/// to the columns after it.
fn widths(columns: &[TopColumn], table: &[Vec<TopLine>], width: usize) -> Vec<usize> {
    let needed = |at: usize| table.iter().map(|cells| cells[at].width()).max().unwrap_or_default();
    let fixed: usize = columns.iter().map(|column| column.width + GAP).sum();
    let mut left = (width + GAP).saturating_sub(fixed);
    let mut shares: usize = columns.iter().map(|column| column.share).sum();
    let is_shared = |column: &TopColumn| column.share > 0 && column.name != WORDS;
    let wanted = columns.iter().enumerate().filter(|(_, column)| is_shared(column));
    let is_wide = wanted.map(|(at, _)| needed(at)).sum::<usize>() + WORDS_MIN <= left;
    let mut widths: Vec<usize> = columns.iter().map(|column| column.width).collect();
    for (at, column) in columns.iter().enumerate().filter(|(_, column)| is_shared(column)) {
        let part = if is_wide { needed(at) } else { needed(at).min(left * column.share / shares) };
        widths[at] = part;
        left -= part;
        shares -= column.share;
    }
    if let Some(at) = columns.iter().position(|column| column.name == WORDS) {
        widths[at] = left;
    }
    widths
}

/// Joins the cells of one row.
fn side_by_side(cells: Vec<TopLine>, widths: &[usize]) -> TopLine {
    let cells = cells.into_iter().zip(widths);
    let cells = cells.map(|(cell, width)| cell.in_cell(*width).into_spans());
    let cells: Vec<Vec<TopSpan>> = cells.collect();
    TopLine::from(cells.join(&TopSpan::plain(" ".repeat(GAP))))
}

/// Returns the text to show in place of a table without rows.
fn nothing(screen: &TopScreen) -> String {
    match (screen.calls.running().is_empty(), !filters(screen).is_empty()) {
        (true, _) => "\n\nNothing runs that shows its calls.\n\n\
            Start a client whose servers run behind `milepost wrap`, or `milepost serve` with an [admin] table.\n\
            They appear here at once."
            .to_owned(),
        (false, true) => "\n\nNo call passes the filter. Esc clears it.".to_owned(),
        (false, false) => "\n\nNo tool was called yet. t shows other requests too.".to_owned(),
    }
}

/// Returns the cell of a call in the column of this name.
fn cell(name: &str, row: &TopRow, styles: &Styles) -> TopLine {
    let call = &row.call;
    let (sign, style) = sign(row, styles);
    match name {
        "TOOL" => TopLine::new(one_line(call.label()), &styles.bold),
        // A value of this column may be the path of a route.
        "SERVER" => {
            TopLine::plain(one_line(row.place.strip_prefix("serve ").unwrap_or(&row.place)))
        }
        "CLIENT" => TopLine::plain(one_line(call.client.as_deref().unwrap_or("unknown client"))),
        "PROGRESS" if row.is_open() => progress(row, styles),
        "PROGRESS" => TopLine::new(row.outcome(), style),
        WORDS => words(row, styles),
        "CHANGES" => TopLine::new(call.changes_within(CHANGES), &styles.dim),
        "TIME" => TopLine::plain(spell(row.took())).at_right(TIME),
        _ => TopLine::new(sign, style),
    }
}

fn sign<'s>(row: &TopRow, styles: &'s Styles) -> (&'static str, &'s Style) {
    match () {
        () if row.is_open() => ("▶", &styles.bar),
        () if row.has_failed() => ("✕", &styles.bad),
        () if row.outcome() == "result" => ("✓", &styles.good),
        () => ("–", &styles.dim),
    }
}

/// Returns the progress of a call: a bar if the finished part is known.
fn progress(row: &TopRow, styles: &Styles) -> TopLine {
    let figure = one_line(&row.call.figure());
    let Some(share) = row.call.share() else { return TopLine::new(figure, &styles.dim) };
    let full = (0..BAR).filter(|step| (*step as f64 + 0.5) / BAR as f64 <= share).count();
    TopLine::from(vec![
        TopSpan::new("█".repeat(full), &styles.bar),
        TopSpan::new("░".repeat(BAR - full), &styles.dim),
        TopSpan::plain(format!(" {figure}")),
    ])
}

/// Returns the last text of a call, and how long its server has been silent.
fn words(row: &TopRow, styles: &Styles) -> TopLine {
    let mut spans = Vec::new();
    let call = &row.call;
    let quiet = row.silence();
    let is_told = row.is_open() && call.message.is_none() && quiet >= QUIET_AFTER;
    if row.is_silent() || is_told {
        let style = if row.is_silent() { &styles.bad } else { &styles.dim };
        spans.push(TopSpan::new(format!("silent {}  ", spell(quiet)), style));
    }
    spans.push(TopSpan::plain(one_line(call.message.as_deref().unwrap_or_default())));
    TopLine::from(spans)
}

/// Returns the filters of the table as text.
fn filters(screen: &TopScreen) -> Vec<String> {
    let mut words = Vec::new();
    if !screen.typed.trim().is_empty() {
        words.push(format!("/{}", one_line(&screen.typed)));
    }
    match screen.filter.trouble {
        CallTrouble::Any => {}
        CallTrouble::Failed => words.push("only failed".to_owned()),
        CallTrouble::Silent => words.push("only silent".to_owned()),
    }
    if screen.filter.only_open {
        words.push("only in flight".to_owned());
    }
    words
}

/// Returns the last line of the screen: the question whether to cancel a call, or the reason why no call was cancelled.
fn draw_question(screen: &TopScreen, styles: &Styles) -> Option<TopLine> {
    if let Some(asked) = &screen.question {
        let question = format!("Cancel {}?", one_line(&asked.label));
        let keys = TopSpan::new("  y yes, any other key no", &styles.dim);
        return Some(TopLine::from(vec![TopSpan::new(question, &styles.bold), keys]));
    }
    let why = screen.refusal.as_ref()?;
    Some(TopLine::new(one_line(why), &styles.bad))
}

/// Returns the keys that fit into this many columns. The last two, for help and for the end, are always among them.
fn keys_within(width: usize, keys: &[&str]) -> String {
    let (optional, last) = keys.split_at(keys.len().saturating_sub(2));
    let line = |count: usize| [&optional[..count], last].concat().join("  ");
    let mut longest_first = (0..=optional.len()).rev().map(line);
    longest_first.find(|keys| keys.len() <= width).unwrap_or_else(|| line(0))
}

fn draw_table_foot(screen: &TopScreen, width: usize, styles: &Styles) -> TopLine {
    let filters = filters(screen).join(", ");
    match (screen.is_typing, filters.is_empty()) {
        (true, _) => TopLine::from(vec![
            TopSpan::new("/", &styles.bold),
            TopSpan::plain(one_line(&screen.typed)),
            TopSpan::new("█", &styles.bar),
            TopSpan::new("  Enter keeps, Esc clears", &styles.dim),
        ]),
        (false, false) => {
            let filters = filters + "  ";
            let used = TopLine::plain(filters.clone()).width();
            let keys = keys_within(width.saturating_sub(used), &FILTER_KEYS);
            let filters = TopSpan::new(filters, &styles.bold);
            TopLine::from(vec![filters, TopSpan::new(keys, &styles.dim)])
        }
        (false, true) => TopLine::new(keys_within(width, &TABLE_KEYS), &styles.dim),
    }
}

fn draw_call(
    width: usize,
    height: usize,
    opened: &mut OpenedCall,
    row: Option<&TopRow>,
    styles: &Styles,
) -> Vec<TopLine> {
    let mut lines = match row {
        Some(row) => facts(row, styles),
        None => vec![TopLine::plain("The call is no longer kept.")],
    };
    lines.push(TopLine::default());
    let height = height.saturating_sub(lines.len());
    let messages = match (&opened.detail, &opened.trouble) {
        (Some(detail), None) if detail.len() > 0 => detail.lines(width, styles),
        (Some(_), None) => vec![TopLine::plain("No message is kept.")],
        (None, None) => vec![TopLine::plain("Reading the messages …")],
        (_, Some(trouble)) => vec![TopLine::plain(one_line(trouble))],
    };
    opened.scroll_max = messages.len().saturating_sub(height);
    let from = opened.scroll.unwrap_or(opened.scroll_max).min(opened.scroll_max);
    lines.extend(messages.into_iter().skip(from).take(height));
    lines
}

fn facts(row: &TopRow, styles: &Styles) -> Vec<TopLine> {
    let call = &row.call;
    let (sign, style) = sign(row, styles);
    let client = one_line(call.client.as_deref().unwrap_or("unknown client"));
    let mut first = vec![
        TopSpan::new(format!("{sign} {} ", one_line(call.label())), style),
        TopSpan::plain(format!("(call {}) at {}, for {client}: ", call.n, one_line(&row.place))),
        TopSpan::new(format!("{} after {}", row.outcome(), spell(row.took())), style),
    ];
    if row.is_open() {
        first.push(TopSpan::plain("  "));
        first.extend(progress(row, styles).into_spans());
    }
    let heard = match call.overheard {
        0 => format!("{} reports of the server", call.received),
        more => format!("{} reports of the server and {more} in its text", call.received),
    };
    let changes = match call.changes() {
        none if none.is_empty() => "nothing changed".to_owned(),
        changes => changes,
    };
    let second = format!("{heard}, {} notifications to the client; {changes}", call.sent);
    vec![TopLine::from(first), TopLine::new(second, &styles.dim)]
}

/// Draws the help over the middle of the screen.
fn lay_help(lines: &mut [TopLine], width: usize, styles: &Styles) {
    let box_width = width.min(HELP);
    let inner = box_width.saturating_sub(2);
    let edge = |left: &str, text: &str, right: &str| {
        let rest = "─".repeat(inner.saturating_sub(text.len()));
        TopLine::plain(format!("{left}{text}{rest}{right}"))
    };
    let row = |(key, does): &(&str, &str)| {
        let key = TopSpan::new(format!(" {key:<9} "), &styles.bold);
        let text = TopLine::from(vec![key, TopSpan::plain(*does)]).at_left(inner);
        let side = || vec![TopSpan::plain("│")];
        TopLine::from([side(), text.into_spans(), side()].concat())
    };
    let mut help = vec![edge("┌", " Keys ", "┐")];
    help.extend(KEYS.iter().map(row));
    help.push(edge("└", "", "┘"));
    let from = lines.len().saturating_sub(help.len()) / 2;
    for (line, help) in lines.iter_mut().skip(from).zip(help) {
        *line = help.in_middle(width);
    }
}

/// Returns a text on one line.
fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// Returns a time in few characters.
fn spell(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} m {:02}", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02}", seconds / 3600, seconds / 60 % 60),
    }
}
