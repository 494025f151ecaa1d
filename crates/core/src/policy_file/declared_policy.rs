//! Declares the settings that a whole route's filters share; see `declared_call.rs`.

use super::declared_call::{FIGURES, FIRST, REQUESTS};
use super::format::{Object, Switch};
use super::setting::Flag;
use super::text::LevelOrOff;
use crate::progress::Policy;
use crate::settings;

settings! { #[cfg(feature = "schema")] Policy, Self::default();
    /// The original of a translated message is forwarded too, for clients that were written for it.
    "keep_original" Switch => keep_original {
        flag: Some(Flag::switch(FIGURES).help(
            "Forward a translated message as well, for clients written for it"
        ))
    }
    /// Words of Milepost's own go into progress of 2024-11-05, where `message` is an unknown member that clients
    /// ignore or show. Without them a heartbeat is a figure alone: the seconds of the call, once two calls of the
    /// tool have ended without a value of the server, and before that the smallest step.
    "words_in_2024" Switch => words_in_2024 {
        flag: Some(Flag::new(FIGURES, "on|off").optional().help(
            "Put words of Milepost's own into progress of 2024-11-05, which knows no `message`"
        )),
        flag_default: "on"
    }
    /// While a command starts, `initialize`, `ping` and the lists are answered as at its last start (in the folder of
    /// `[state]`). A server that turns out to be another one gets its client to connect again.
    "cached_start" Switch => cached_start {
        flag: Some(Flag::switch(FIRST).help(
            "While the command starts, answer `initialize` and the lists as at its last start"
        )),
        is_recorded: false
    }
    /// Clients of 2026-07-28 reach a server that knows earlier revisions only. Clients with the same credentials and
    /// the same capabilities share a session of the server; without credentials they do over loopback only.
    "modern" Switch => modern {
        flag: Some(Flag::switch(FIRST).help(
            "Let clients of 2026-07-28 reach a server that knows earlier revisions only"
        )),
        is_recorded: false
    }
    /// Additions to the client's capabilities. A capability that the client has set stays.
    "ask.capabilities" Object => capabilities {
        flag: Some(Flag::new(REQUESTS, "JSON").help(
            "Put these into the capabilities of the client, such as \
             '{\"experimental\": {\"progressNotifications\": {}}}'"
        )),
        is_recorded: false
    }
    /// The level of the log messages that Milepost requests from the server, unless the client requests log
    /// messages itself. No effect from 2026-07-28 on, where each request names its level.
    "ask.log_level" LevelOrOff => log_level {
        flag: Some(Flag::new(REQUESTS, "LEVEL").help(
            "Ask the server for log messages of this level, or off, unless the client asks itself; not \
             from 2026-07-28 on"
        )),
        is_recorded: false
    }
}
