//! The choice of the calls that `milepost top` shows, and their order.

use super::row::TopRow;

/// The calls in trouble that the table is narrowed to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallTrouble {
    /// All calls.
    #[default]
    Any,
    /// Calls that have failed.
    Failed,
    /// Calls in flight whose server is silent.
    Silent,
}

impl CallTrouble {
    /// Returns the next value; the first follows the last.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Any => Self::Failed,
            Self::Failed => Self::Silent,
            Self::Silent => Self::Any,
        }
    }
}

/// The order of the calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallOrder {
    /// Calls in flight in the order of their beginning, then ended calls, newest first.
    #[default]
    Usual,
    /// The longest first.
    Time,
    /// The alphabet of the tools.
    Tool,
    /// The alphabet of the servers.
    Server,
    /// The call with the most changes first.
    Changes,
}

impl CallOrder {
    /// Returns the next value; the first follows the last.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Usual => Self::Time,
            Self::Time => Self::Tool,
            Self::Tool => Self::Server,
            Self::Server => Self::Changes,
            Self::Changes => Self::Usual,
        }
    }

    /// Returns the name of the order; `None` for the usual order.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::Usual => None,
            Self::Time => Some("time"),
            Self::Tool => Some("tool"),
            Self::Server => Some("server"),
            Self::Changes => Some("changes"),
        }
    }
}

/// Which calls are shown, and in which order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct CallFilter {
    /// Words in lower case; each must be in the line of a call.
    pub(super) words: Vec<String>,
    /// Also requests that call no tool.
    pub(super) every_method: bool,
    /// Whether only calls in flight are shown.
    pub(super) only_open: bool,
    /// The trouble that calls must have to be shown.
    pub(super) trouble: CallTrouble,
    /// The order.
    pub(super) order: CallOrder,
}

impl CallFilter {
    /// Shows all calls of tools again. The order stays, and the choice of other requests too.
    pub(super) fn clear(&mut self) {
        let (every_method, order) = (self.every_method, self.order);
        *self = Self { every_method, order, ..Self::default() };
    }

    /// Whether a call is shown.
    pub(super) fn admits(&self, row: &TopRow) -> bool {
        let call = &row.call;
        if !self.every_method && call.tool.is_none() || self.only_open && !row.is_open() {
            return false;
        }
        let is_in_trouble = match self.trouble {
            CallTrouble::Any => true,
            CallTrouble::Failed => row.has_failed(),
            CallTrouble::Silent => row.is_silent(),
        };
        if !is_in_trouble {
            return false;
        }
        let text = [
            call.label(),
            &row.place,
            call.client.as_deref().unwrap_or_default(),
            call.message.as_deref().unwrap_or_default(),
            row.outcome(),
            &call.changes(),
        ];
        let text = text.join(" ").to_lowercase();
        self.words.iter().all(|word| text.contains(word))
    }
}
