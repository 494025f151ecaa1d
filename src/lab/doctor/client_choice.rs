//! The client of `--client`: `doctor` sends its name to the server, and the report has its known facts.

use crate::config::values::nearest;
use crate::progress::clients::{self, CLIENTS, Row};

/// The client that `--client` names.
#[derive(Debug, Clone)]
pub(super) struct ClientChoice {
    /// The name that the user gave.
    pub(super) name: String,
    /// The known facts about the client, if there are any.
    pub(super) row: Option<&'static Row>,
    /// A similar known name, which the user perhaps meant.
    pub(super) near: Option<&'static str>,
}

impl ClientChoice {
    pub(super) fn new(name: &str) -> Self {
        let row = clients::find(name, "").or_else(|| clients::titled(name));
        let known = CLIENTS.iter().flat_map(|row| row.names.iter().copied().chain([row.client]));
        let near = match row {
            Some(_) => None,
            None => nearest(name, known),
        };
        Self { name: name.to_owned(), row, near }
    }

    /// Returns the name to send as `clientInfo.name`.
    pub(super) fn sent(&self) -> &str {
        let row = self.row.filter(|_| clients::find(&self.name, "").is_none());
        row.and_then(|row| row.names.first().copied()).unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_found_by_the_name_that_people_use() {
        for (name, title, sent) in [
            ("Cursor", Some("Cursor"), None),
            ("vs code", Some("VS Code"), None),
            ("claude-code", Some("Claude Code"), Some("claude-code")),
            ("Claude Code", Some("Claude Code"), Some("Claude Code")),
            ("nobody", None, Some("nobody")),
        ] {
            let choice = ClientChoice::new(name);
            assert_eq!(choice.row.map(|row| row.client), title, "{name}");
            let own = choice.row.and_then(|row| row.names.first().copied());
            assert_eq!(Some(choice.sent()), sent.or(own), "{name}");
        }
        assert_eq!(ClientChoice::new("Cursr").near, Some("Cursor"));
        assert_eq!(ClientChoice::new("VSCode").near, Some("VS Code"));
    }
}
