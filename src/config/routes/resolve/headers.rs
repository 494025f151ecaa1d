//! `headers`: the headers that are set and removed.

use std::path::Path;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use toml::Spanned;

use crate::config::routes::env::EnvValues;
use crate::config::routes::file;
use crate::config::routes::{BearerFile, HeaderRules};
use crate::config::values::compound::HeaderText;
use crate::config::values::nearest;
use crate::policy_file::diagnostics::ConfigError;

/// Headers that describe one connection (RFC 9110 §7.6.1, RFC 9113 §8.2.2) or frame one message: each connection has
/// its own, so rules cannot change them.
const OF_A_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers whose value is always a secret.
const SECRETS: [&str; 3] = ["authorization", "cookie", "set-cookie"];

/// Header names that are often meant, to suggest one for a misspelt name.
const COMMON: [&str; 8] = [
    "authorization",
    "cookie",
    "origin",
    "set-cookie",
    "user-agent",
    "x-api-key",
    "x-forwarded-for",
    "x-request-id",
];

/// Reads the rules of one direction. Relative paths start at `folder`.
pub(super) fn read(
    section: &file::HeaderRulesSection,
    folder: &Path,
    env_values: &EnvValues,
) -> Result<HeaderRules, ConfigError> {
    let cookie_path = section.cookie_path.as_ref().is_some_and(|key| *key.get_ref());
    let mut rules = HeaderRules { cookie_path, ..HeaderRules::default() };
    for (name, value) in &section.set {
        let header = header(name)?;
        if rules.set.iter().any(|(known, _)| *known == header) {
            return Err(ConfigError::new(name.span(), format!("`{header}` is set twice")));
        }
        let text = match value.get_ref() {
            HeaderText::Text(text) => text,
            // The token is read now, so that a file without a token is an error of the route file, and not of a
            // request.
            HeaderText::BearerFile(path) => {
                let bearer = BearerFile::in_file(folder.join(path));
                let token = bearer.header().map_err(|why| ConfigError::new(value.span(), why))?;
                rules.set.push((header.clone(), token));
                rules.bearer_files.push((header, Arc::new(bearer)));
                continue;
            }
        };
        // The error does not repeat the value, which may be a secret.
        let read = HeaderValue::from_str(text);
        let mut read = read.map_err(|_| {
            ConfigError::new(
                value.span(),
                "a value without line breaks and other control signs is expected",
            )
        })?;
        let is_secret = env_values.written(text).is_some() || SECRETS.contains(&header.as_str());
        // No debug text shows a sensitive value, and HTTP/2 does not put it into its table (RFC 7541, 7.1.3).
        read.set_sensitive(is_secret);
        rules.set.push((header, read));
    }
    for name in &section.remove {
        let header = header(name)?;
        if rules.set.iter().any(|(known, _)| *known == header) {
            let what = format!("`{header}` is set as well; one of both is expected");
            return Err(ConfigError::new(name.span(), what));
        }
        if !rules.remove.contains(&header) {
            rules.remove.push(header);
        }
    }
    Ok(rules)
}

fn header(name: &Spanned<String>) -> Result<HeaderName, ConfigError> {
    let text = name.get_ref();
    let header: HeaderName = text.parse().map_err(|_| {
        let near = nearest(&text.replace([' ', '_'], "-").to_lowercase(), COMMON);
        let near = near.unwrap_or("x-api-key");
        ConfigError::new(
            name.span(),
            format!("{text:?} is no header; one such as {near:?} is expected"),
        )
    })?;
    if OF_A_CONNECTION.contains(&header.as_str()) {
        let what = format!("`{header}` belongs to one connection and never passes");
        return Err(ConfigError::new(name.span(), what));
    }
    Ok(header)
}
