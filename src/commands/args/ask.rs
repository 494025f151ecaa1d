//! Flags for servers that must be asked.

use clap::Args;

use super::policy::words;
use crate::config::settings::{AskSettings, level_or_off, members, meta};
use crate::progress::policy::ask::{LogLevel, Members, TokenType};

/// By a name of its own: clap takes an option of an option for a flag that may have no value.
type LevelOrNone = Option<LogLevel>;

#[derive(Debug, Args)]
pub(super) struct AskArgs {
    /// Copy the progress token of a tool call into its arguments, as a string under
    /// `_meta.progressToken`, for servers that look for it there
    #[arg(long)]
    ask_token_in_arguments: bool,
    /// Give the server tokens of this type, whatever the client's are: string, integer or same
    /// [default: same]
    #[arg(long, value_name = "TYPE", value_parser = words::<TokenType>())]
    ask_token_type: Option<TokenType>,
    /// Put these members into `_meta` of tool calls, such as '{"stream": true}'
    #[arg(long, value_name = "JSON", value_parser = meta)]
    ask_meta: Option<Members>,
    /// Put these arguments into tool calls, such as '{"verbose": true}'
    #[arg(long, value_name = "JSON", value_parser = members)]
    ask_arguments: Option<Members>,
    /// Put these into the capabilities of the client, such as
    /// '{"experimental": {"progressNotifications": {}}}'
    #[arg(long, value_name = "JSON", value_parser = members)]
    ask_capabilities: Option<Members>,
    /// Ask the server for log messages of this level, or off, unless the client asks itself; not from
    /// 2026-07-28 on [default: off]
    #[arg(long, value_name = "LEVEL", value_parser = level_or_off)]
    ask_log_level: Option<LevelOrNone>,
}

impl AskArgs {
    pub(super) fn settings(&self) -> AskSettings {
        AskSettings {
            token_in_arguments: self.ask_token_in_arguments.then_some(true),
            token_type: self.ask_token_type,
            meta: self.ask_meta.clone(),
            arguments: self.ask_arguments.clone(),
        }
    }

    pub(super) fn capabilities(&self) -> Option<Members> {
        self.ask_capabilities.clone()
    }

    pub(super) fn log_level(&self) -> Option<Option<LogLevel>> {
        self.ask_log_level
    }
}
