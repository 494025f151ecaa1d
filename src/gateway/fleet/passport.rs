//! `Milepost-Forwarded`: the signed facts that a replica adds to a request that it passes on.
//!
//! ```text
//! Milepost-Forwarded: 1;TIME;NONCE;TO;CLIENT;LOCAL;SECURE;NAME;MAC
//! ```
//!
//! TIME is in milliseconds since 1970. TO is the address of the replica that gets the request. CLIENT and LOCAL are the
//! two ends of the client's connection. NAME is the client's name from its certificate or a trusted front (base64url).
//! MAC is an HMAC-SHA-256 over all of this, the method, the path with its query, and the headers that identify the
//! client. A header is accepted once, within [`AGE_MAX`] of its time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use ring::hmac;

use crate::protocol::trace_context::to_hex;
use crate::transport::http::client_name::ClientName;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, SESSION_ID};

/// The header with the facts about a request that is passed on.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("milepost-forwarded");

/// Limit of the age of a header: the difference between the clocks of two replicas, and the time on the way.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(30);

/// Limit of the headers that are remembered, so that none is accepted twice. Beyond it the oldest are forgotten, and
/// headers from before that time are refused.
const SEEN_MAX: usize = 1 << 17;

/// The usual length of the header, in bytes.
const FACTS_LENGTH: usize = 192;

/// The usual length of the signed text, in bytes.
const SIGNED_LENGTH: usize = 512;

/// What the replica that a client is connected to knows about the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFacts {
    /// The address of the client.
    pub(crate) remote: SocketAddr,
    /// The address that the client connected to.
    pub(crate) local: SocketAddr,
    /// Whether the client uses TLS.
    pub(crate) secure: bool,
    /// The name of the client's principal: from its certificate, or from the header of a trusted front.
    pub(crate) name: Option<ClientName>,
}

/// Why a request at the fleet's address is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PassportError {
    /// The header is missing, or cannot be read.
    #[error("no other replica has passed the request on")]
    None,
    /// The header was signed with another key, or the request was changed.
    #[error("the request was not passed on by a replica with the same key")]
    Forged,
    /// The header was signed for another replica.
    #[error(
        "the request was passed on to another replica; does the `advertise` of each replica lead to that replica?"
    )]
    Astray,
    /// The header is old, or the clocks of the replicas differ.
    #[error("the request was passed on too long ago; do the clocks of the replicas differ?")]
    Old,
    /// The header was already accepted once.
    #[error("the request was passed on twice")]
    Twice,
}

impl PassportError {
    /// Returns the name for logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "not-forwarded",
            Self::Forged => "forged",
            Self::Astray => "astray",
            Self::Old => "old",
            Self::Twice => "twice",
        }
    }
}

/// Signs the header, and checks it.
pub(crate) struct PassportOffice {
    /// The keys: the first one signs, and all of them are accepted.
    keys: Vec<hmac::Key>,
    seen: Mutex<SeenNonces>,
}

impl PassportOffice {
    /// Returns an office with the keys of a fleet.
    pub(crate) fn new<'a>(keys: impl IntoIterator<Item = &'a [u8; 32]>) -> Self {
        let derived = |key: &[u8; 32]| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            let own = hmac::sign(&key, b"milepost forwarded");
            hmac::Key::new(hmac::HMAC_SHA256, own.as_ref())
        };
        Self { keys: keys.into_iter().map(derived).collect(), seen: Mutex::default() }
    }

    /// Returns the header for a request to the replica at `to`. `now`: milliseconds since 1970; `nonce`: a number that
    /// no replica has used before.
    pub(crate) fn sign(
        &self,
        parts: &Parts,
        client: &ClientFacts,
        to: SocketAddr,
        now: u64,
        nonce: u64,
    ) -> Option<HeaderValue> {
        let mut text = facts(client, to, now, nonce);
        let mac = hmac::sign(self.keys.first()?, &signed(&text, parts));
        text.push(';');
        URL_SAFE_NO_PAD.encode_string(mac, &mut text);
        HeaderValue::try_from(text).ok()
    }

    /// Reads the header of a request that has reached the replica at `me`.
    ///
    /// # Errors
    /// If the header does not come from a replica with the same key, was made for another replica, or is too old.
    pub(crate) fn check(
        &self,
        parts: &Parts,
        me: SocketAddr,
        now: u64,
    ) -> Result<ClientFacts, PassportError> {
        let mut values = parts.headers.get_all(FORWARDED).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(PassportError::None);
        };
        let text = value.to_str().map_err(|_| PassportError::None)?;
        let (facts, mac) = text.rsplit_once(';').ok_or(PassportError::None)?;
        let mac = URL_SAFE_NO_PAD.decode(mac).map_err(|_| PassportError::None)?;
        let signed = signed(facts, parts);
        if !self.keys.iter().any(|key| hmac::verify(key, &signed, &mac).is_ok()) {
            return Err(PassportError::Forged);
        }
        // Read after the MAC is checked, because another version of Milepost may write the facts in another form.
        let Passport { time, nonce, to, client } = read(facts).ok_or(PassportError::None)?;
        if to != me {
            return Err(PassportError::Astray);
        }
        let age = u64::try_from(AGE_MAX.as_millis()).unwrap_or(u64::MAX);
        if now.abs_diff(time) > age {
            return Err(PassportError::Old);
        }
        // The nonce is noted last, so that only valid headers are remembered.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.take(nonce, time, now, age).map(|()| client)
    }
}

/// Returns the content of the header as text, without the standard formatter, which would need a fifth of the time of a
/// request that is passed on.
fn facts(client: &ClientFacts, to: SocketAddr, now: u64, nonce: u64) -> String {
    let ClientFacts { remote, local, secure, name } = client;
    let mut text = String::with_capacity(FACTS_LENGTH);
    text.push_str("1;");
    push_number(&mut text, now);
    text.push(';');
    text.push_str(&to_hex(&nonce.to_be_bytes()));
    for address in [to, *remote, *local] {
        text.push(';');
        push_address(&mut text, address);
    }
    text.push_str(if *secure { ";1;" } else { ";0;" });
    let name = name.as_ref().map_or("", ClientName::as_str);
    URL_SAFE_NO_PAD.encode_string(name, &mut text);
    text
}

fn push_number(text: &mut String, number: u64) {
    let mut power = 10_u64.pow(number.checked_ilog10().unwrap_or_default());
    while power > 0 {
        let digit = u8::try_from(number / power % 10).unwrap_or_default();
        text.push(char::from(b'0' + digit));
        power /= 10;
    }
}

fn push_address(text: &mut String, address: SocketAddr) {
    let SocketAddr::V4(address) = address else {
        text.push_str(&address.to_string());
        return;
    };
    for (at, octet) in address.ip().octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        push_number(text, octet.into());
    }
    text.push(':');
    push_number(text, address.port().into());
}

/// The content of the header, as read.
struct Passport {
    time: u64,
    nonce: u64,
    to: SocketAddr,
    client: ClientFacts,
}

fn read(facts: &str) -> Option<Passport> {
    let mut parts = facts.split(';');
    if parts.next() != Some("1") {
        return None;
    }
    let time = parts.next()?.parse().ok()?;
    let nonce = u64::from_str_radix(parts.next()?, 16).ok()?;
    let to = parts.next()?.parse().ok()?;
    let remote = parts.next()?.parse().ok()?;
    let local = parts.next()?.parse().ok()?;
    let secure = parts.next()? == "1";
    let name = String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()?;
    let name = (!name.is_empty()).then(|| ClientName::passed_on(&name));
    let client = ClientFacts { remote, local, secure, name };
    parts.next().is_none().then_some(Passport { time, nonce, to, client })
}

/// Returns the bytes that are signed. Each part is preceded by its length, so that no byte can change its part.
fn signed(facts: &str, parts: &Parts) -> Vec<u8> {
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let mut bytes = Vec::with_capacity(SIGNED_LENGTH);
    let mut add = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    [facts, parts.method.as_str(), target].iter().for_each(|part| add(part.as_bytes()));
    for name in [&SESSION_ID, &AUTHORIZATION, &LAST_EVENT_ID] {
        let mut values = parts.headers.get_all(name).iter();
        add(values.next().map_or(b"", HeaderValue::as_bytes));
        // Whether a header occurs twice is signed too: a reader of the last value would read an unsigned one.
        add(&[u8::from(values.next().is_some())]);
    }
    bytes
}

/// The nonces of accepted headers, in two halves: the older half is forgotten when the newer one is full or old enough.
#[derive(Default)]
struct SeenNonces {
    newer: HashSet<u64>,
    older: HashSet<u64>,
    /// The time when the newer half began, in milliseconds since 1970.
    since: u64,
    /// The time, in milliseconds since 1970, before which nonces may have been forgotten. Older headers are refused.
    known_from: u64,
}

impl SeenNonces {
    fn take(&mut self, nonce: u64, time: u64, now: u64, age: u64) -> Result<(), PassportError> {
        // Clocks differ, so the time of a valid header may be up to `age` before or after now, and its nonce must be
        // remembered for twice `age`.
        let is_full = self.newer.len() >= SEEN_MAX;
        if is_full || now.saturating_sub(self.since) > 2 * age {
            if is_full {
                self.known_from = self.since;
            }
            self.older = std::mem::take(&mut self.newer);
            self.since = now;
        }
        if time < self.known_from {
            return Err(PassportError::Old);
        }
        if self.older.contains(&nonce) || !self.newer.insert(nonce) {
            return Err(PassportError::Twice);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn here() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], 7334))
    }

    #[test]
    fn the_header_is_what_the_formatter_would_write() {
        for address in ["0.0.0.0:0", "10.0.0.2:7334", "255.255.255.255:65535", "[2001:db8::7]:80"] {
            let mut text = String::new();
            push_address(&mut text, address.parse().unwrap());
            assert_eq!(text, address);
        }
        for number in [0, 9, 10, NOW, u64::MAX] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
        let ClientFacts { remote, local, .. } = client();
        let name = URL_SAFE_NO_PAD.encode("cn:a; b");
        let expected = format!("1;{NOW};{:016x};{};{remote};{local};1;{name}", 77, here());
        assert_eq!(facts(&client(), here(), NOW, 77), expected);
    }

    fn office(keys: &[u8]) -> PassportOffice {
        let keys: Vec<[u8; 32]> = keys.iter().map(|byte| [*byte; 32]).collect();
        PassportOffice::new(&keys)
    }

    fn request(lines: &[(&str, &str)]) -> Parts {
        let mut request = Request::post("/r?x=1");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn client() -> ClientFacts {
        ClientFacts {
            remote: "[2001:db8::7]:4711".parse().unwrap(),
            local: "10.0.0.1:7332".parse().unwrap(),
            secure: true,
            name: Some(ClientName::passed_on("cn:a; b")),
        }
    }

    fn passed_on(lines: &[(&str, &str)], by: &PassportOffice, nonce: u64) -> Parts {
        let mut parts = request(lines);
        let header = by.sign(&parts, &client(), here(), NOW, nonce).unwrap();
        parts.headers.insert(FORWARDED, header);
        parts
    }

    #[test]
    fn a_replica_with_a_common_key_is_believed_once() {
        let (old, both) = (office(&[1]), office(&[2, 1]));
        let parts = passed_on(&[("mcp-session-id", "a")], &old, 5);
        assert_eq!(both.check(&parts, here(), NOW + 100), Ok(client()));
        assert_eq!(both.check(&parts, here(), NOW + 200), Err(PassportError::Twice));
        assert_eq!(old.check(&passed_on(&[], &both, 6), here(), NOW), Err(PassportError::Forged));
    }

    #[test]
    fn a_header_is_for_its_request_and_for_its_time() {
        let office = office(&[1]);
        let lines = [("mcp-session-id", "a"), ("authorization", "Bearer x")];
        let good = || passed_on(&lines, &office, 1);
        let mut cases = vec![good(), good(), good(), good(), good()];
        cases[0].method = http::Method::GET;
        cases[1].uri = "/s?x=1".parse().unwrap();
        cases[2].headers.insert("mcp-session-id", "b".parse().unwrap());
        cases[3].headers.append("authorization", "Bearer y".parse().unwrap());
        cases[4].headers.insert("last-event-id", "1-1".parse().unwrap());
        for parts in &cases {
            assert_eq!(office.check(parts, here(), NOW), Err(PassportError::Forged));
        }
        assert_eq!(office.check(&request(&lines), here(), NOW), Err(PassportError::None));
        assert_eq!(office.check(&good(), here(), NOW + 30_001), Err(PassportError::Old));
        assert_eq!(office.check(&good(), here(), NOW - 30_001), Err(PassportError::Old));
        assert_eq!(office.check(&good(), here(), NOW - 30_000), Ok(client()));
    }

    #[test]
    fn a_header_is_for_one_replica() {
        let office = office(&[1]);
        let parts = passed_on(&[], &office, 9);
        let other = SocketAddr::from(([10, 0, 0, 3], 7334));
        assert_eq!(office.check(&parts, other, NOW), Err(PassportError::Astray));
        assert_eq!(office.check(&parts, here(), NOW), Ok(client()));
    }

    #[test]
    fn a_header_is_known_as_long_as_it_could_be_taken() {
        let mut seen = SeenNonces::default();
        let age = 30_000;
        for step in 0..10_u64 {
            let now = NOW + step * 10_000;
            assert_eq!(seen.take(step, now + age, now, age), Ok(()));
            for earlier in 0..=step.min(5) {
                let again = seen.take(step - earlier, now, now, age);
                assert_eq!(again, Err(PassportError::Twice), "{step} {earlier}");
            }
        }
        for nonce in 0..2 * SEEN_MAX as u64 {
            assert_eq!(seen.take(1000 + nonce, NOW + 200_000, NOW + 200_000, age), Ok(()));
        }
        assert!(seen.newer.len() + seen.older.len() <= 2 * SEEN_MAX);
        let late = seen.take(1, NOW + 199_999, NOW + 200_001, age);
        assert_eq!(late, Err(PassportError::Old), "what was taken then may be forgotten");
    }
}
