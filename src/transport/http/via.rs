//! `Via`: the proxies that a message has passed, by which a request in a loop is detected.

use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};

use super::refusal::Refusal;

/// Limit of the proxies in `Via`. A request with more is refused with 508, because a real chain has a few proxies, and
/// a loop through proxies that hide their names has many.
const HOPS_MAX: usize = 16;

/// The name of this process in `Via`: a random pseudonym, so that the header reveals nothing about
/// the machine, and two proxies in a chain never have the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    name: String,
    /// The entry of this process in `Via`, for messages of HTTP/1.0, 1.1 and 2.
    hops: [HeaderValue; 3],
}

impl Via {
    /// Returns a random pseudonym.
    ///
    /// # Errors
    ///
    /// If the system has no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        getrandom::u32().map(Self::named)
    }

    /// Returns the pseudonym made of this number.
    pub fn named(number: u32) -> Self {
        let name = format!("milepost-{number:08x}");
        let hop = |version: &str| {
            // Digits and letters are always a valid header value.
            HeaderValue::try_from(format!("{version} {name}"))
                .unwrap_or_else(|_| HeaderValue::from_static("1.1 milepost"))
        };
        Self { hops: ["1.0", "1.1", "2.0"].map(hop), name }
    }

    /// Checks whether a request may be forwarded.
    ///
    /// # Errors
    /// If the request has passed this proxy before, or more than 16 proxies.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hops = 0;
        for hop in headers.get_all(VIA).iter().flat_map(|line| hops_of(line.as_bytes())) {
            let mut words = hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            // An entry is the protocol, then the name of the proxy that received the message (RFC 9110, 7.6.3).
            let received_by = words.nth(1).unwrap_or_default();
            if received_by.eq_ignore_ascii_case(self.name.as_bytes()) {
                return Err(Refusal::Loop);
            }
            hops += 1;
        }
        if hops > HOPS_MAX { Err(Refusal::TooManyHops) } else { Ok(()) }
    }

    /// Adds Milepost's entry after the others; `received` is the HTTP version of the received message.
    pub(crate) fn append(&self, headers: &mut HeaderMap, received: Version) {
        let [old, usual, new] = &self.hops;
        let hop = match received {
            Version::HTTP_10 => old,
            Version::HTTP_2 => new,
            _ => usual,
        };
        headers.append(VIA, hop.clone());
    }
}

/// Returns the entries of one line, except for empty ones. Even a comma within a comment separates entries, so that an
/// unclosed bracket cannot hide the entries after it.
fn hops_of(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|hop| !hop.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], expected: Result<(), Refusal>) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(VIA, line.parse().unwrap());
        }
        assert_eq!(Via::named(0xbad_cafe).check(&headers), expected, "{lines:?}");
    }

    #[test]
    fn only_our_own_name_is_a_loop() {
        check(&[], Ok(()));
        check(&["1.1 milepost-00000001, 1.1 nginx"], Ok(()));
        check(&["1.1 milepost-0badcafe"], Err(Refusal::Loop));
        check(&["1.1 nginx", "2.0 a, HTTP/1.1 Milepost-0BADCAFE (hm)"], Err(Refusal::Loop));
        check(&["1.1 milepost-0badcafe0"], Ok(()));
        check(&["1.1 nginx (milepost-0badcafe)"], Ok(()));
        check(&["1.1 nginx (, 1.1 milepost-0badcafe"], Err(Refusal::Loop));
    }

    #[test]
    fn a_chain_has_at_most_sixteen_proxies() {
        let many = |count: usize| vec!["1.1 a"; count].join(",");
        check(&[&many(16)], Ok(()));
        check(&[&many(17)], Err(Refusal::TooManyHops));
        check(&[&many(10), &many(7)], Err(Refusal::TooManyHops));
        check(&["1.1 a", ",,,,,,,,,,,,,,,,,,,,"], Ok(()));
    }

    #[test]
    fn our_hop_comes_last_and_says_the_version_that_we_received() {
        let mut headers = HeaderMap::new();
        headers.append(VIA, HeaderValue::from_static("1.1 nginx"));
        Via::named(1).append(&mut headers, Version::HTTP_2);
        Via::named(2).append(&mut headers, Version::HTTP_11);
        let lines: Vec<_> = headers.get_all(VIA).iter().collect();
        assert_eq!(lines, ["1.1 nginx", "2.0 milepost-00000001", "1.1 milepost-00000002"]);
    }

    #[test]
    fn pseudonyms_differ() {
        assert_ne!(Via::random().unwrap(), Via::random().unwrap());
    }
}
