//! Masks secrets in text that is shown to a client.
//!
//! A server writes its standard error for its operator, and not for clients. A word that may be a secret is masked.
//! Hashes, ids and paths are frequent in such text and stay readable.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use regex::{Match, Regex};

use crate::progress::extract::compile;
use crate::protocol::secret;

/// The text in place of a secret.
pub const MASK: &str = "***";

/// Limit of the patterns (`mask`) of a route, in addition to the built-in patterns. Every pattern is tried on every
/// line.
pub const PATTERNS_MAX: usize = 32;

/// Limit of the bytes of one pattern (`mask`).
pub const PATTERN_MAX: usize = 1 << 10;

/// The name of the group that marks the part of a match to be masked.
const GROUP: &str = "secret";

/// The minimum length of a secret that is recognised by its beginning, such as the key of a service.
const VALUE_MIN: usize = 16;

/// The patterns of secrets.
#[derive(Clone, Default)]
pub struct Masks {
    /// The patterns of a route, with their texts.
    own: Arc<[(String, Regex)]>,
}

impl PartialEq for Masks {
    fn eq(&self, other: &Self) -> bool {
        self.patterns().eq(other.patterns())
    }
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.patterns()).finish()
    }
}

impl Masks {
    /// Reads regular expressions that are used in addition to the built-in patterns. Of a match the group `secret` is
    /// masked, or the whole match if there is no such group. The error describes the correct form.
    pub fn read<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut own: Vec<(String, Regex)> = Vec::new();
        for written in patterns {
            if own.iter().any(|(known, _)| known == written) {
                return Err(format!("{written:?} is there twice"));
            }
            if own.len() == PATTERNS_MAX {
                return Err(format!("at most {PATTERNS_MAX} patterns are expected"));
            }
            if written.len() > PATTERN_MAX {
                return Err(format!("a pattern of at most {PATTERN_MAX} bytes is expected"));
            }
            let expression = compile(written).map_err(|error| {
                let said = error.to_string();
                let why = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
                format!("{written:?} is not a regular expression: {why}")
            })?;
            if expression.is_match("") {
                let what = "matches nothing at all, too; one that only matches secrets is expected";
                return Err(format!("{written:?} {what}"));
            }
            own.push((written.to_owned(), expression));
        }
        Ok(Self { own: own.into() })
    }

    /// Returns the patterns of the route as they were written, without the built-in patterns.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.own.iter().map(|(written, _)| &**written)
    }

    /// Returns the text with each secret replaced by [`MASK`].
    pub fn mask<'a>(&self, words: &'a str) -> Cow<'a, str> {
        let found = self.secrets(words);
        if found.is_empty() {
            return Cow::Borrowed(words);
        }
        let mut masked = String::with_capacity(words.len());
        let mut shown = 0;
        for range in found {
            masked.push_str(words.get(shown..range.start).unwrap_or_default());
            masked.push_str(MASK);
            shown = range.end;
        }
        masked.push_str(words.get(shown..).unwrap_or_default());
        Cow::Owned(masked)
    }

    /// Returns the ranges of the secrets in a text, in order and without overlaps.
    pub fn secrets(&self, words: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        // Nearly all lines contain no hint, so the other patterns need not be tried.
        if HINT.0.iter().any(|hint| hint.is_match(words)) {
            let places = [ValuePlace::AfterSign, ValuePlace::AfterSpace];
            let patterns = NAMED.0.iter().zip(places);
            patterns.for_each(|(pattern, place)| named(pattern, place, words, &mut found));
            found.extend(PLAIN.0.iter().flat_map(|pattern| all(pattern, words)));
            let keys = KEYS.0.iter().flat_map(|pattern| pattern.find_iter(words));
            found.extend(keys.filter(|key| is_key(key.as_str())).map(|key| key.range()));
        }
        if is_armour(words) {
            found.push(0..words.len());
        }
        found.extend(self.own.iter().flat_map(|(_, pattern)| all(pattern, words)));
        joined(found)
    }
}

/// Joins overlapping ranges.
fn joined(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_by_key(|range| (range.start, range.end));
    let mut all: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found.into_iter().filter(|range| !range.is_empty()) {
        match all.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// Returns the ranges of the matches of a pattern: of the group `secret`, or else of the whole match.
fn all(pattern: &Regex, words: &str) -> Vec<Range<usize>> {
    let found = pattern.captures_iter(words);
    found
        .filter_map(|found| found.name(GROUP).or_else(|| found.get(0)).map(|m| m.range()))
        .collect()
}

/// Substrings of which every line with a secret contains at least one, in upper or lower case. Most lines contain none,
/// so the other patterns need not be tried.
static HINT: LazyLock<SecretPatterns> = LazyLock::new(|| {
    let hints = secret::WORDS.iter().chain(&secret::BEGINNINGS).copied();
    let hints: Vec<String> = hints.map(regex::escape).collect();
    // `otp` and `pin` are parts of many words, so they count only at the beginning of a word.
    SecretPatterns::new([format!(
        "(?i-u){}|basic|://|-----begin|keys|session|signature|tokens|(?:^|[ -@\\[-`{{-~])(?:otp|pin)|\
         [?&](?:sig|code)=|(?:^|\\s)-u\\s|(?:^|\\s)--(?:proxy-)?user[\\s=]",
        hints.join("|")
    )])
});

/// Values with names: `name=value`, `name: value`, `"name":"value"`, `--name value`.
static NAMED: LazyLock<SecretPatterns> = LazyLock::new(|| {
    let name = r#"(?i)(?<name>[a-z0-9_.-]*[a-z0-9_])"#;
    let value = r#"(?:"(?<quoted>[^"\\]*)|'(?<single>[^']*)|(?<bare>[^\s"'\\,;&<>(){}\[\]:=][^\s"',;&<>(){}\[\]]*))"#;
    SecretPatterns::new([
        format!(r#"{name}\\?["']?\s*(?::=|=>|[:=])\s*\\?{value}"#),
        format!(r#"(?:^|\s)--?{name}\s+{value}"#),
    ])
});

/// Patterns of secrets that are recognised by the text around them.
static PLAIN: LazyLock<SecretPatterns> = LazyLock::new(|| {
    let patterns = [
        r#"(?i)\b(?:authorization|cookie)\\?["']?\s*[:=]\s*\\?["']?(?<secret>[^"'\r\n]+)"#,
        r"(?i)\b(?:bearer|basic)\s+(?<secret>[a-z0-9._~+/-]{0,64}[0-9=][a-z0-9._~+/=-]{7,})",
        r"(?i)\b(?:bearer|basic)\s+(?<secret>[a-z0-9._~+/-]{7,64}[0-9=][a-z0-9._~+/=-]*)",
        r#"(?i)\b[a-z][a-z0-9+.-]*://[^\s/@:"']*:(?<secret>[^\s/"']+)@"#,
        r#"(?i)\b[a-z][a-z0-9+.-]*://(?<secret>[^\s/@:"']{16,})@"#,
        r#"(?i)(?:^|\s)(?:-u\s+|--(?:proxy-)?user[\s=]\s*)["']?[^\s:"']+:(?<secret>[^\s"']*[^\s"'0-9][^\s"']*)"#,
        r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?<secret>.*?)(?:-----END|$)",
    ];
    SecretPatterns::new(patterns.map(str::to_owned))
});

/// Keys of well-known services.
static KEYS: LazyLock<SecretPatterns> = LazyLock::new(|| {
    let beginnings: Vec<String> = secret::BEGINNINGS.into_iter().map(regex::escape).collect();
    SecretPatterns::new([format!(r"\b(?:{})[A-Za-z0-9_.+/=-]+", beginnings.join("|"))])
});

/// The built-in patterns. A test checks that each of them can be compiled.
struct SecretPatterns(Vec<Regex>);

impl SecretPatterns {
    fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        Self(patterns.into_iter().filter_map(|pattern| Regex::new(&pattern).ok()).collect())
    }
}

/// Parts of names that do not mark a secret by themselves, because many values with these names are harmless.
const WEAK: [&str; 4] = ["auth", "key", "pass", "pat"];

/// Words that, together with `key`, mark the key as a secret.
const OF_KEYS: [&str; 10] = [
    "access",
    "account",
    "api",
    "encryption",
    "license",
    "master",
    "private",
    "secret",
    "shared",
    "signing",
];

/// Last parts of names that describe a secret but are not secrets (`token_count`).
const ABOUT: [&str; 23] = [
    "bucket", "count", "counter", "dir", "endpoint", "expires", "expiry", "file", "id", "length",
    "limit", "name", "path", "policy", "prefix", "rate", "size", "stdin", "store", "ttl", "type",
    "url", "usage",
];

/// Words that are often written in place of a secret (`token: missing`).
const SAID: [&str; 34] = [
    "accepted",
    "are",
    "cached",
    "changed",
    "created",
    "deleted",
    "denied",
    "error",
    "expired",
    "failed",
    "found",
    "has",
    "invalid",
    "is",
    "loaded",
    "missing",
    "must",
    "needed",
    "no",
    "not",
    "null",
    "ok",
    "read",
    "received",
    "refreshed",
    "rejected",
    "required",
    "set",
    "undefined",
    "unset",
    "updated",
    "valid",
    "verified",
    "was",
];

/// The place of a value behind its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValuePlace {
    /// After `=` or `:`.
    AfterSign,
    /// After a space: `--password x`.
    AfterSpace,
}

/// Finds the values whose names mark them as secrets. A value that is not a secret is searched in turn, because it may
/// contain a secret: `https://x/?key=value`.
fn named(pattern: &Regex, place: ValuePlace, words: &str, found: &mut Vec<Range<usize>>) {
    let mut from = 0;
    while let Some(named) = pattern.captures_at(words, from) {
        let value = ["quoted", "single", "bare"].into_iter().find_map(|group| named.name(group));
        let (Some(name), Some(value)) = (named.name("name"), value) else { return };
        if is_secret(words, place, name, value) {
            found.push(value.range());
            from = value.end();
        } else {
            from = value.start();
        }
    }
}

/// Whether a name such as `token` or `--password` marks its value as a secret.
fn is_secret(words: &str, place: ValuePlace, name: Match<'_>, value: Match<'_>) -> bool {
    // In a name with dots (`config.token`, `token.json`) the last part says what the value is.
    let last = name.as_str().rsplit('.').next().unwrap_or_default().to_lowercase();
    let parts: Vec<&str> = last.split(['-', '_']).collect();
    let said = value.as_str().trim_end_matches(['.', '!', '?', ':']);
    let is_said = secret::is_plain(&said.to_lowercase())
        || SAID.contains(&&*said.to_lowercase())
        || (last == "pwd" && said.starts_with('/'));
    let in_query = words.split_at(name.start()).0.ends_with(['?', '&']);
    // In "--session 3" the value counts as a secret, but "session 3 of 10" is a sentence.
    if place == ValuePlace::AfterSign && secret::is_doubtful_secret(&last, said) {
        return true;
    }
    if parts.last().is_some_and(|part| ABOUT.contains(part)) || is_said {
        return false;
    }
    if in_query && parts.iter().any(|part| secret::DOUBTFUL.contains(part)) {
        return true;
    }
    if !secret::is_secret_name(&last) {
        let is_signature = ["code", "sig", "signature"].contains(&&*last);
        return (in_query && is_signature) || last.ends_with("-signature");
    }
    let is_strong = |part: &&str| !WEAK.contains(part) && secret::is_secret_name(part);
    in_query
        || parts.iter().any(|part| OF_KEYS.contains(part) || is_strong(part))
        || !parts.iter().any(|part| WEAK.contains(part))
        || secret::is_long(said)
}

/// Whether a value that begins like the key of a service is really a key.
fn is_key(value: &str) -> bool {
    value.len() >= VALUE_MIN && value.bytes().filter(u8::is_ascii_digit).count() > 1
}

/// Whether a line is a line of base64, as in PEM files.
fn is_armour(words: &str) -> bool {
    let words = words.trim();
    let has = |is: fn(&u8) -> bool| words.as_bytes().iter().any(is);
    // PEM has lines of 64 characters (RFC 7468), MIME has lines of 76 (RFC 2045).
    matches!(words.len(), 64 | 76)
        && words.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
}
