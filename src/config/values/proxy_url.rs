//! Reads `upstream.proxy`: the forward proxy through which a server is reached.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::policy_file::text::Spelling;

/// The word in the file for no proxy.
pub(super) const DIRECT: &str = "none";

/// The forward proxy that a route chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyChoice {
    /// No proxy, even if the environment names one.
    Direct,
    /// This proxy, even if the environment names another.
    Through(ProxyUrl),
}

impl ProxyChoice {
    /// Whether the choice is a proxy that is reached over TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Through(url) if url.is_tls)
    }
}

/// The URL of a forward proxy. `Display` and `Debug` do not show its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    /// Whether the proxy itself is reached over TLS.
    pub is_tls: bool,
    /// The name or address of the proxy, without brackets.
    pub host: String,
    /// The port of the proxy.
    pub port: u16,
    /// The value of `Proxy-Authorization`, made of the user and password in the URL.
    pub authorization: Option<HeaderValue>,
}

impl ProxyUrl {
    /// Reads a URL such as `http://user:password@proxy.example:3128`. A path and a query are ignored.
    ///
    /// # Errors
    /// If the text is not the URL of a supported proxy. The error does not show the text, which may contain a password.
    pub fn read(text: &str) -> Result<Self, String> {
        let expected = "one such as \"http://proxy.example:3128\" is expected";
        let url =
            Url::parse(text).map_err(|error| format!("this is no URL ({error}); {expected}"))?;
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            scheme => {
                return Err(format!(
                    "a proxy at {scheme}: is not supported; a URL with http:// or https:// is expected"
                ));
            }
        };
        // Resolvers and `connect` expect an IPv6 address without brackets.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        if host.is_empty() || port == 0 {
            return Err(format!("this URL has no host or port; {expected}"));
        }
        let has_user = !url.username().is_empty() || url.password().is_some();
        let authorization = has_user.then(|| basic(&url)).transpose()?;
        Ok(Self { is_tls, host, port, authorization })
    }

    fn with_user(&self, user: &str) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{scheme}://{user}{open}{}{close}:{}", self.host, self.port)
    }
}

/// Returns the value of `Proxy-Authorization` for the user and the password of a URL (RFC 7617).
fn basic(url: &Url) -> Result<HeaderValue, String> {
    // RFC 7617, 2: the pair is joined by a colon and then encoded; percent escapes are only for the URL.
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)));
    let mut value = value.map_err(|_| "the credentials of the proxy are too long".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_user(""))
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_user(if self.authorization.is_some() { "***@" } else { "" }))
    }
}

/// `none`, or the URL of a forward proxy, whose credentials are not shown.
pub(crate) struct ProxyText;

impl Spelling for ProxyText {
    type Value = ProxyChoice;

    fn expected() -> String {
        format!("a URL such as \"http://proxy.example:3128\", or \"{DIRECT}\"")
    }

    fn read(text: &str) -> Result<ProxyChoice, String> {
        match text {
            DIRECT => Ok(ProxyChoice::Direct),
            url => ProxyUrl::read(url).map(ProxyChoice::Through),
        }
    }

    fn spell(choice: &ProxyChoice) -> String {
        match choice {
            ProxyChoice::Direct => DIRECT.to_owned(),
            ProxyChoice::Through(url) => format!("{url:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let url =
            ProxyUrl::read("http://al%40corp:p%3Ass%20w%C3%B6rd@proxy.example:3128/x?y").unwrap();
        let value = url.authorization.as_ref().unwrap();
        assert_eq!(value, &format!("Basic {}", STANDARD.encode("al@corp:p:ss wörd")));
        assert!(value.is_sensitive());
        assert_eq!(url.to_string(), "http://proxy.example:3128");
        assert_eq!(format!("{url:?}"), "http://***@proxy.example:3128");
        let user = ProxyUrl::read("http://alice@proxy.example").unwrap();
        let alone = format!("Basic {}", STANDARD.encode("alice:"));
        assert_eq!((user.authorization.unwrap(), user.port), (alone.parse().unwrap(), 80));
    }

    #[test]
    fn a_proxy_is_at_a_url_of_http() {
        for (text, shown) in [
            ("http://proxy.example", "http://proxy.example:80"),
            ("https://proxy.example", "https://proxy.example:443"),
            ("http://[fd00::1]:3128", "http://[fd00::1]:3128"),
            ("HTTP://10.0.0.7:8080/", "http://10.0.0.7:8080"),
        ] {
            assert_eq!(ProxyUrl::read(text).unwrap().to_string(), shown);
        }
        for (text, why) in [
            ("socks5://c4n4ry:c4n4ry@proxy.example:1080", "socks5: is not supported"),
            ("proxy.example:3128", "is not supported"),
            ("c4n4ry", "no URL"),
            ("", "no URL"),
            ("http://", "no URL"),
            ("http://c4n4ry@proxy.example:0", "no host or port"),
        ] {
            let error = ProxyUrl::read(text).unwrap_err();
            assert!(error.contains(why) && !error.contains("c4n4ry"), "{text}: {error}");
        }
        assert_eq!(ProxyText::read("none"), Ok(ProxyChoice::Direct));
    }
}
