//! The state of `milepost top`, and what the keys do.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::calls::{CallFilter, CallKey, TopCalls, TopRow};
use super::detail::TopDetail;

/// Characters of a filter.
const WORDS_MAX: usize = 200;

/// The rows that a page key moves.
const PAGE: usize = 10;

/// What is in sight.
#[derive(Debug)]
pub(super) enum TopView {
    /// The table.
    Table,
    /// One call.
    Call(OpenedCall),
}

/// A call in sight.
#[derive(Debug)]
pub(super) struct OpenedCall {
    pub(super) key: CallKey,
    pub(super) detail: Option<TopDetail>,
    /// The reason why there are no messages.
    pub(super) trouble: Option<String>,
    /// Lines above the screen; `None`: the newest message stays in sight.
    pub(super) scroll: Option<usize>,
    /// The largest value of `scroll`, as drawn last.
    pub(super) scroll_max: usize,
    /// What the messages were read for: their number and whether the call has ended.
    pub(super) read: Option<(usize, bool)>,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct TopScreen {
    pub(super) calls: TopCalls,
    pub(super) view: TopView,
    pub(super) filter: CallFilter,
    /// The text of the filter, while it is typed and afterwards.
    pub(super) typed: String,
    pub(super) is_typing: bool,
    pub(super) has_help: bool,
    /// The rows and the time of the pause.
    pub(super) paused: Option<(Vec<TopRow>, Instant)>,
    pub(super) chosen: Option<CallKey>,
    pub(super) has_colours: bool,
}

/// What a key asks for beyond the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopStep {
    /// Nothing.
    On,
    /// The end.
    Quit,
}

impl TopScreen {
    pub(super) fn new(has_colours: bool) -> Self {
        Self {
            calls: TopCalls::default(),
            view: TopView::Table,
            filter: CallFilter::default(),
            typed: String::new(),
            is_typing: false,
            has_help: false,
            paused: None,
            chosen: None,
            has_colours,
        }
    }

    /// The rows in sight.
    pub(super) fn rows(&self, now: Instant) -> Vec<TopRow> {
        match &self.paused {
            Some((rows, _)) => rows.clone(),
            None => self.calls.rows(&self.filter, now),
        }
    }

    /// The place of the chosen call among these rows; the first row if it is not there.
    pub(super) fn place(&self, rows: &[TopRow]) -> Option<usize> {
        let chosen = self.chosen.as_ref();
        let place = chosen.and_then(|key| rows.iter().position(|row| row.key == *key));
        place.or(if rows.is_empty() { None } else { Some(0) })
    }

    /// Does what a key says.
    pub(super) fn press(&mut self, key: KeyEvent, now: Instant) -> TopStep {
        if key.kind == KeyEventKind::Release {
            return TopStep::On;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return TopStep::Quit;
        }
        if self.is_typing {
            self.type_key(key.code);
            return TopStep::On;
        }
        if std::mem::take(&mut self.has_help) {
            return TopStep::On;
        }
        match (key.code, &self.view) {
            (KeyCode::Char('?'), _) => self.has_help = true,
            (KeyCode::Char('p' | ' '), _) => self.pause(now),
            (KeyCode::Char('q'), TopView::Table) => return TopStep::Quit,
            (KeyCode::Char('q') | KeyCode::Esc, TopView::Call(_)) => self.view = TopView::Table,
            (code, TopView::Call(_)) => self.scroll(code),
            (code, TopView::Table) => self.table_key(code, now),
        }
        TopStep::On
    }

    fn type_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Esc => {
                self.typed.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Backspace => drop(self.typed.pop()),
            KeyCode::Char(sign) if self.typed.len() < WORDS_MAX => self.typed.push(sign),
            _ => {}
        }
        self.refilter();
    }

    fn refilter(&mut self) {
        let words = self.typed.to_lowercase();
        self.filter.words = words.split_whitespace().map(str::to_owned).collect();
    }

    fn pause(&mut self, now: Instant) {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some((self.calls.rows(&self.filter, now), now)),
        };
    }

    fn table_key(&mut self, code: KeyCode, now: Instant) {
        let rows = self.rows(now);
        let last = rows.len().saturating_sub(1);
        let place = self.place(&rows).unwrap_or_default();
        let place = match code {
            KeyCode::Char('/') => {
                self.is_typing = true;
                self.paused = None;
                return;
            }
            KeyCode::Esc => {
                self.typed.clear();
                return self.refilter();
            }
            KeyCode::Char('t') => {
                self.filter.every_method = !self.filter.every_method;
                return;
            }
            KeyCode::Char('o') => {
                self.filter.only_open = !self.filter.only_open;
                return;
            }
            KeyCode::Enter | KeyCode::Char('l') => {
                if let Some(row) = rows.get(place) {
                    self.chosen = Some(row.key.clone());
                    self.view = TopView::Call(OpenedCall::new(row.key.clone()));
                }
                return;
            }
            KeyCode::Char('j') | KeyCode::Down => place + 1,
            KeyCode::Char('k') | KeyCode::Up => place.saturating_sub(1),
            KeyCode::PageDown => place + PAGE,
            KeyCode::PageUp => place.saturating_sub(PAGE),
            KeyCode::Char('g') | KeyCode::Home => 0,
            KeyCode::Char('G') | KeyCode::End => last,
            _ => return,
        };
        self.chosen = rows.get(place.min(last)).map(|row| row.key.clone());
    }

    fn scroll(&mut self, code: KeyCode) {
        let TopView::Call(opened) = &mut self.view else { return };
        let max = opened.scroll_max;
        let at = opened.scroll.unwrap_or(max).min(max);
        let to = match code {
            KeyCode::Char('j') | KeyCode::Down => at + 1,
            KeyCode::Char('k') | KeyCode::Up => at.saturating_sub(1),
            KeyCode::PageDown => at + PAGE,
            KeyCode::PageUp => at.saturating_sub(PAGE),
            KeyCode::Char('g') | KeyCode::Home => 0,
            KeyCode::Char('G') | KeyCode::End => max,
            _ => return,
        };
        // At the end the newest message stays in sight.
        opened.scroll = (to < max).then_some(to);
    }
}

impl OpenedCall {
    fn new(key: CallKey) -> Self {
        Self { key, detail: None, trouble: None, scroll: None, scroll_max: 0, read: None }
    }
}
