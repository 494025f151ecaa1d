//! The command line of a proxy, as the user writes it: `[ADDRESS] COMMAND`, with placeholders for the reference server
//! and for a free port.

use std::fmt;
use std::str::FromStr;

use crate::lab::doctor::traffic::TransportKind;

/// A command line of a proxy, with placeholders.
#[derive(Debug, Clone)]
pub struct ProxyTemplate {
    /// The address at which the proxy listens; `None` if the proxy uses its standard streams.
    pub(super) address: Option<String>,
    pub(super) command: String,
    /// The transport towards the client.
    pub(super) front: TransportKind,
    /// The transport towards the server.
    pub(super) back: TransportKind,
}

/// The reason why a text is not the command line of a proxy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TemplateError {
    /// The text has no placeholder for the server.
    #[error(
        "no place for the server: `{{server}}` is its command, `{{url}}` its address, `{{sse}}` its address for HTTP+SSE"
    )]
    NoServer,
    /// The text has several placeholders for the server.
    #[error("one of `{{server}}`, `{{url}}` and `{{sse}}` is expected, not several")]
    Several,
    /// The text is empty.
    #[error("a command is expected behind the address")]
    NoCommand,
}

impl FromStr for ProxyTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let text = text.trim();
        let is_address = text.starts_with("http://") || text.starts_with("https://");
        let (address, command) = match text.split_once(char::is_whitespace) {
            Some((address, command)) if is_address => (Some(address.to_owned()), command.trim()),
            _ if is_address => return Err(TemplateError::NoCommand),
            _ => (None, text),
        };
        let kinds = [
            ("{server}", TransportKind::Stdio),
            ("{url}", TransportKind::Streamable),
            ("{sse}", TransportKind::Sse),
        ];
        let mut backs = kinds.iter().filter(|(place, _)| command.contains(place));
        let back = backs.next().ok_or(TemplateError::NoServer)?.1;
        if backs.next().is_some() {
            return Err(TemplateError::Several);
        }
        let front = match &address {
            None => TransportKind::Stdio,
            Some(address) if address.trim_end_matches('/').ends_with("/sse") => TransportKind::Sse,
            Some(_) => TransportKind::Streamable,
        };
        Ok(Self { address, command: command.to_owned(), front, back })
    }
}

impl ProxyTemplate {
    /// Returns the transports as text, from the client to the server.
    pub(super) fn pair(&self) -> String {
        format!("{} to {}", short(self.front), short(self.back))
    }
}

const fn short(kind: TransportKind) -> &'static str {
    match kind {
        TransportKind::Stdio => "stdio",
        TransportKind::Streamable => "HTTP",
        TransportKind::Sse => "HTTP+SSE",
    }
}

impl fmt::Display for ProxyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{address} {}", self.command),
            None => f.write_str(&self.command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transports_are_those_of_the_places() {
        let pair = |text: &str| text.parse::<ProxyTemplate>().map(|template| template.pair());
        assert_eq!(pair("wrap -- {server}").unwrap(), "stdio to stdio");
        assert_eq!(pair("http://127.0.0.1:{port}/mcp p {sse}").unwrap(), "HTTP to HTTP+SSE");
        assert_eq!(pair("http://127.0.0.1:{port}/sse p {url}").unwrap(), "HTTP+SSE to HTTP");
        assert!(matches!(pair("p"), Err(TemplateError::NoServer)));
        assert!(matches!(pair("p {url} {server}"), Err(TemplateError::Several)));
        assert!(matches!(pair("http://127.0.0.1/mcp"), Err(TemplateError::NoCommand)));
    }
}
