//! The state of `milepost top`, and the effects of keys.

use std::time::Instant;

use console::Key;

use super::calls::TopCalls;
use super::detail::TopDetail;
use super::filter::CallFilter;
use super::row::{CallKey, TopRow};
use super::style::Colours;

/// Maximum number of characters of a filter.
const WORDS_MAX: usize = 200;

/// The number of rows that a page key moves.
const PAGE: usize = 10;

/// The view that is shown.
#[derive(Debug)]
pub(super) enum TopView {
    /// The table.
    Table,
    /// One call.
    Call(OpenedCall),
}

/// The call that is opened in the call view.
#[derive(Debug)]
pub(super) struct OpenedCall {
    pub(super) key: CallKey,
    pub(super) detail: Option<TopDetail>,
    /// The reason why the messages are missing.
    pub(super) trouble: Option<String>,
    /// Number of lines above the visible ones; `None` if the newest message stays visible.
    pub(super) scroll: Option<usize>,
    /// The largest valid value of `scroll` when the view was last drawn.
    pub(super) scroll_max: usize,
    /// When the messages were read: their number, and whether the call had ended.
    pub(super) read: Option<(usize, bool)>,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct TopScreen {
    pub(super) calls: TopCalls,
    pub(super) view: TopView,
    pub(super) filter: CallFilter,
    /// The text of the filter, during typing and afterwards.
    pub(super) typed: String,
    pub(super) is_typing: bool,
    pub(super) has_help: bool,
    /// While paused: the rows, and the time at which the pause began.
    pub(super) paused: Option<(Vec<TopRow>, Instant)>,
    pub(super) chosen: Option<CallKey>,
    /// The question whether to cancel a call, while it is shown.
    pub(super) question: Option<CancelQuestion>,
    /// The reason why a call was not cancelled, until the next key.
    pub(super) refusal: Option<String>,
    pub(super) colours: Colours,
}

/// The question whether to cancel a call.
#[derive(Debug)]
pub(super) struct CancelQuestion {
    pub(super) key: CallKey,
    /// A readable name of the call.
    pub(super) label: String,
}

/// An action that a key requests and that the screen itself cannot do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopStep {
    /// Nothing to do.
    On,
    /// Cancel this call.
    Cancel(CallKey),
    /// Quit `top`.
    Quit,
}

impl TopScreen {
    pub(super) fn new(colours: Colours) -> Self {
        Self {
            calls: TopCalls::default(),
            view: TopView::Table,
            filter: CallFilter::default(),
            typed: String::new(),
            is_typing: false,
            has_help: false,
            paused: None,
            chosen: None,
            question: None,
            refusal: None,
            colours,
        }
    }

    /// Returns the rows that the table shows.
    pub(super) fn rows(&self, now: Instant) -> Vec<TopRow> {
        match &self.paused {
            Some((rows, _)) => rows.clone(),
            None => self.calls.rows(&self.filter, now),
        }
    }

    /// Returns the index of the chosen call among these rows, or 0 if the call is not there; `None` without rows.
    pub(super) fn place(&self, rows: &[TopRow]) -> Option<usize> {
        let chosen = self.chosen.as_ref();
        let place = chosen.and_then(|key| rows.iter().position(|row| row.key == *key));
        place.or(if rows.is_empty() { None } else { Some(0) })
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: &Key, now: Instant) -> TopStep {
        if *key == Key::CtrlC {
            return TopStep::Quit;
        }
        if self.is_typing {
            self.type_key(key);
            return TopStep::On;
        }
        if std::mem::take(&mut self.has_help) {
            return TopStep::On;
        }
        self.refusal = None;
        if let Some(asked) = self.question.take() {
            let is_yes = matches!(key, Key::Char('y' | 'Y'));
            return if is_yes { TopStep::Cancel(asked.key) } else { TopStep::On };
        }
        match (key, &self.view) {
            (Key::Char('?'), _) => self.has_help = true,
            (Key::Char('p' | ' '), _) => self.pause(now),
            (Key::Char('x'), _) => self.ask_to_cancel(now),
            (Key::Char('q'), TopView::Table) => return TopStep::Quit,
            (Key::Char('q') | Key::Escape, TopView::Call(_)) => self.view = TopView::Table,
            (_, TopView::Call(_)) => self.scroll(key),
            (_, TopView::Table) => self.table_key(key, now),
        }
        TopStep::On
    }

    fn type_key(&mut self, key: &Key) {
        match key {
            Key::Escape => {
                self.typed.clear();
                self.is_typing = false;
            }
            Key::Enter => self.is_typing = false,
            Key::Backspace => drop(self.typed.pop()),
            Key::Char(sign) if self.typed.len() < WORDS_MAX && !sign.is_control() => {
                self.typed.push(*sign);
            }
            _ => {}
        }
        let words = self.typed.to_lowercase();
        self.filter.words = words.split_whitespace().map(str::to_owned).collect();
    }

    fn pause(&mut self, now: Instant) {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some((self.calls.rows(&self.filter, now), now)),
        };
    }

    /// Asks whether to cancel the chosen call, if the call is open.
    fn ask_to_cancel(&mut self, now: Instant) {
        let row = match &self.view {
            TopView::Call(opened) => self.calls.row(&opened.key, now),
            TopView::Table => {
                let rows = self.rows(now);
                self.place(&rows).and_then(|place| rows.get(place).cloned())
            }
        };
        // The rows may be paused, so the present state of the call is looked up.
        let row = row.and_then(|row| self.calls.row(&row.key, now));
        match row.filter(TopRow::is_open) {
            Some(row) => {
                let label = format!("call {}, {} at {}", row.call.n, row.call.label(), row.place);
                self.question = Some(CancelQuestion { key: row.key, label });
            }
            None => self.refusal = Some("only a call in flight can be cancelled".to_owned()),
        }
    }

    fn table_key(&mut self, key: &Key, now: Instant) {
        let rows = self.rows(now);
        let last = rows.len().saturating_sub(1);
        let place = self.place(&rows).unwrap_or_default();
        let place = match key {
            Key::Char('/') => {
                self.is_typing = true;
                self.paused = None;
                return;
            }
            Key::Escape => {
                self.typed.clear();
                self.filter.clear();
                return;
            }
            Key::Char('s') => {
                self.filter.order = self.filter.order.next();
                return;
            }
            Key::Char('f') => {
                self.filter.trouble = self.filter.trouble.next();
                return;
            }
            Key::Char('t') => {
                self.filter.every_method = !self.filter.every_method;
                return;
            }
            Key::Char('o') => {
                self.filter.only_open = !self.filter.only_open;
                return;
            }
            Key::Enter | Key::Char('l') => {
                if let Some(row) = rows.get(place) {
                    self.chosen = Some(row.key.clone());
                    self.view = TopView::Call(OpenedCall::new(row.key.clone()));
                }
                return;
            }
            Key::Char('j') | Key::ArrowDown => place + 1,
            Key::Char('k') | Key::ArrowUp => place.saturating_sub(1),
            Key::PageDown => place + PAGE,
            Key::PageUp => place.saturating_sub(PAGE),
            Key::Char('g') | Key::Home => 0,
            Key::Char('G') | Key::End => last,
            _ => return,
        };
        self.chosen = rows.get(place.min(last)).map(|row| row.key.clone());
    }

    fn scroll(&mut self, key: &Key) {
        let TopView::Call(opened) = &mut self.view else { return };
        let max = opened.scroll_max;
        let at = opened.scroll.unwrap_or(max).min(max);
        let to = match key {
            Key::Char('j') | Key::ArrowDown => at + 1,
            Key::Char('k') | Key::ArrowUp => at.saturating_sub(1),
            Key::PageDown => at + PAGE,
            Key::PageUp => at.saturating_sub(PAGE),
            Key::Char('g') | Key::Home => 0,
            Key::Char('G') | Key::End => max,
            _ => return,
        };
        // At the end, the newest message stays visible.
        opened.scroll = (to < max).then_some(to);
    }
}

impl OpenedCall {
    fn new(key: CallKey) -> Self {
        Self { key, detail: None, trouble: None, scroll: None, scroll_max: 0, read: None }
    }
}
