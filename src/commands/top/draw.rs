//! What `milepost top` draws.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use super::calls::TopRow;
use super::screen::{OpenedCall, TopScreen, TopView};
use super::style::Styles;
use crate::progress::clients::is_unprintable;

/// Columns of a bar.
const BAR: usize = 10;

/// Columns from which the table shows the client and the changes.
const WIDE: u16 = 110;

/// Columns of the changes: a number in them is never cut.
const CHANGES: u16 = 16;

/// The silence of a server that is mentioned.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// The keys, for `?`.
const KEYS: [(&str, &str); 12] = [
    ("j k ↓ ↑", "the next call, the one before"),
    ("g G", "the first, the last"),
    ("Enter", "the messages of a call, side by side"),
    ("Esc", "back; in the table: no filter"),
    ("/", "only calls with these words: tool, server, client, message, outcome, changes"),
    ("t", "also requests that call no tool"),
    ("o", "only calls in flight"),
    ("p", "pause: nothing moves until p"),
    ("?", "this help"),
    ("q", "the end; in a call: back"),
    ("", ""),
    ("", "press any key"),
];

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut TopScreen, now: Instant) {
    let styles = Styles::new(screen.has_colours);
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    draw_head(frame, head, screen, &styles, now);
    match &mut screen.view {
        TopView::Table => {
            draw_table(frame, body, screen, &styles, now);
            draw_table_foot(frame, foot, screen, &styles);
        }
        TopView::Call(opened) => {
            let row = screen.calls.row(&opened.key, now);
            draw_call(frame, body, opened, row.as_ref(), &styles);
            let keys = "Esc back  j/k scroll  g first  G newest  p pause  ? help  q back";
            frame.render_widget(Paragraph::new(keys).style(styles.dim), foot);
        }
    }
    if screen.has_help {
        draw_help(frame, &styles);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, screen: &TopScreen, styles: &Styles, now: Instant) {
    let rows = screen.rows(now);
    let open = rows.iter().filter(|row| row.is_open()).count();
    let servers = screen.calls.running().len();
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let mut spans = vec![
        Span::styled("milepost top", styles.bold),
        Span::raw(format!(
            "  {}, {}, {} ended",
            count(servers, "process", "processes"),
            count(open, "call in flight", "calls in flight"),
            rows.len() - open,
        )),
    ];
    if let Some((_, since)) = &screen.paused {
        let ago = spell(now.saturating_duration_since(*since));
        spans.push(Span::styled(format!("  PAUSED {ago} ago, p goes on"), styles.bad));
    }
    if let Some(trouble) = screen.calls.trouble() {
        spans.push(Span::styled(format!("  {}", clean(&trouble)), styles.bad));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &TopScreen,
    styles: &Styles,
    now: Instant,
) {
    let rows = screen.rows(now);
    if rows.is_empty() {
        let text = nothing(screen);
        frame.render_widget(Paragraph::new(text).alignment(Alignment::Center), area);
        return;
    }
    let is_wide = area.width >= WIDE;
    let mut names = vec!["", "TOOL", "SERVER", "PROGRESS", "MESSAGE", "TIME"];
    let mut widths = vec![
        Constraint::Length(1),
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(26),
        Constraint::Fill(3),
        Constraint::Length(8),
    ];
    if is_wide {
        names.splice(3..3, ["CLIENT"]);
        widths.insert(3, Constraint::Fill(2));
        names.insert(6, "CHANGES");
        widths.insert(6, Constraint::Length(CHANGES));
    }
    let lines = rows.iter().map(|row| table_row(row, is_wide, styles));
    let table = Table::new(lines, widths)
        .header(Row::new(names).style(styles.dim))
        .column_spacing(2)
        .row_highlight_style(styles.chosen);
    let mut state = TableState::new().with_selected(screen.place(&rows));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The text in the place of a table without rows.
fn nothing(screen: &TopScreen) -> String {
    let is_filtered = !screen.filter.words.is_empty() || screen.filter.only_open;
    match (screen.calls.running().is_empty(), is_filtered) {
        (true, _) => "\n\nNothing runs that shows its calls.\n\n\
            Start a client whose servers run behind `milepost wrap`, or `milepost serve` with an [admin] table.\n\
            They appear here at once."
            .to_owned(),
        (false, true) => "\n\nNo call is let through by the filter. Esc clears it.".to_owned(),
        (false, false) => "\n\nNo tool was called yet. t shows other requests too.".to_owned(),
    }
}

fn table_row(row: &TopRow, is_wide: bool, styles: &Styles) -> Row<'static> {
    let call = &row.call;
    let (sign, style) = sign(row, styles);
    let text = |text: &str| Cell::from(clean(text));
    let progress = if row.is_open() {
        progress(row, styles)
    } else {
        Line::from(row.outcome().to_owned()).style(style)
    };
    let mut cells = vec![
        Cell::from(sign).style(style),
        Cell::from(Line::styled(clean(call.label()), styles.bold)),
        text(&row.place),
        Cell::from(progress),
        Cell::from(words(row, styles)),
        Cell::from(Line::from(spell(row.took())).alignment(Alignment::Right)),
    ];
    if is_wide {
        cells.insert(3, text(call.client.as_deref().unwrap_or("unknown client")));
        cells.insert(6, Cell::from(call.changes_within(usize::from(CHANGES))).style(styles.dim));
    }
    Row::new(cells)
}

fn sign(row: &TopRow, styles: &Styles) -> (&'static str, Style) {
    match () {
        () if row.is_open() => ("▶", styles.bar),
        () if row.has_failed() => ("✕", styles.bad),
        () if row.outcome() == "result" => ("✓", styles.good),
        () => ("–", styles.dim),
    }
}

/// The progress of a call: a bar where the part that is done is known.
fn progress(row: &TopRow, styles: &Styles) -> Line<'static> {
    let figure = clean(&row.call.figure());
    let Some(share) = row.call.share() else { return Line::styled(figure, styles.dim) };
    let full = (0..BAR).filter(|step| (*step as f64 + 0.5) / BAR as f64 <= share).count();
    Line::from(vec![
        Span::styled("█".repeat(full), styles.bar),
        Span::styled("░".repeat(BAR - full), styles.dim),
        Span::raw(format!(" {figure}")),
    ])
}

/// The last words of a call, and how long its server has been silent.
fn words(row: &TopRow, styles: &Styles) -> Line<'static> {
    let mut spans = Vec::new();
    let call = &row.call;
    let quiet = row.now.saturating_sub(call.spoke.unwrap_or(call.opened));
    let quiet = Duration::from_millis(quiet);
    if row.is_open() && quiet >= SILENT_AFTER {
        spans.push(Span::styled(format!("silent {}  ", spell(quiet)), styles.bad));
    }
    spans.push(Span::raw(clean(call.message.as_deref().unwrap_or_default())));
    Line::from(spans)
}

fn draw_table_foot(frame: &mut Frame<'_>, area: Rect, screen: &TopScreen, styles: &Styles) {
    let foot = match (screen.is_typing, screen.typed.is_empty()) {
        (true, _) => Line::from(vec![
            Span::styled("/", styles.bold),
            Span::raw(clean(&screen.typed)),
            Span::styled("█", styles.bar),
            Span::styled("  Enter keeps, Esc clears", styles.dim),
        ]),
        (false, false) => Line::from(vec![
            Span::styled(format!("/{}", clean(&screen.typed)), styles.bold),
            Span::styled("  Esc clears  Enter open  p pause  ? help  q quit", styles.dim),
        ]),
        (false, true) => Line::styled(
            "Enter open  / filter  t all requests  o in flight  p pause  ? help  q quit",
            styles.dim,
        ),
    };
    frame.render_widget(foot, area);
}

fn draw_call(
    frame: &mut Frame<'_>,
    area: Rect,
    opened: &mut OpenedCall,
    row: Option<&TopRow>,
    styles: &Styles,
) {
    let facts = match row {
        Some(row) => facts(row, styles),
        None => vec![Line::from("The call is no longer kept.")],
    };
    let height = u16::try_from(facts.len()).unwrap_or(u16::MAX).saturating_add(1);
    let [top, body] =
        Layout::vertical([Constraint::Length(height), Constraint::Min(1)]).areas(area);
    frame.render_widget(Paragraph::new(facts), top);
    let lines = match (&opened.detail, &opened.trouble) {
        (Some(detail), None) if detail.len() > 0 => detail.lines(body.width.into(), styles),
        (Some(_), None) => vec![Line::from("No message is kept.")],
        (None, None) => vec![Line::from("Reading the messages …")],
        (_, Some(trouble)) => vec![Line::from(clean(trouble))],
    };
    opened.scroll_max = lines.len().saturating_sub(body.height.into());
    let from = opened.scroll.unwrap_or(opened.scroll_max).min(opened.scroll_max);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(from).take(body.height.into()).collect();
    frame.render_widget(Paragraph::new(shown), body);
}

fn facts(row: &TopRow, styles: &Styles) -> Vec<Line<'static>> {
    let call = &row.call;
    let (sign, style) = sign(row, styles);
    let client = clean(call.client.as_deref().unwrap_or("unknown client"));
    let mut first = vec![
        Span::styled(format!("{sign} {} ", clean(call.label())), style),
        Span::raw(format!("at {}, for {client}: ", clean(&row.place))),
        Span::styled(format!("{} after {}", row.outcome(), spell(row.took())), style),
    ];
    if row.is_open() {
        first.push(Span::raw("  "));
        first.extend(progress(row, styles).spans);
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
    vec![Line::from(first), Line::styled(second, styles.dim)]
}

fn draw_help(frame: &mut Frame<'_>, styles: &Styles) {
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, does)| {
            Line::from(vec![Span::styled(format!(" {key:<9} "), styles.bold), Span::raw(*does)])
        })
        .collect();
    let area = frame.area();
    let width = area.width.min(92);
    let height = area.height.min(u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2));
    let area = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), area);
}

/// A text without control characters, on one line.
fn clean(text: &str) -> String {
    let sign = |sign: char| if sign == '\n' { ' ' } else { sign };
    text.chars().map(sign).filter(|sign| !is_unprintable(*sign)).collect()
}

/// A time in few characters.
fn spell(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} m {:02}", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02}", seconds / 3600, seconds / 60 % 60),
    }
}
