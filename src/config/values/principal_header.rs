//! Reads `principal`: the header in which trusted fronts name the user of a request.

use http::{HeaderName, header};

use crate::policy_file::text::Spelling;

/// The prefix before the name of the header.
const KIND: &str = "header:";

/// Headers that have another meaning, so that they cannot name a user.
const OTHERS: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::ORIGIN,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("mcp-session-id"),
];

/// The name of a header, after `header:`.
pub(crate) struct PrincipalHeader;

impl Spelling for PrincipalHeader {
    type Value = HeaderName;

    fn expected() -> String {
        "a header such as \"header:x-user\"".to_owned()
    }

    fn read(text: &str) -> Result<HeaderName, String> {
        let wrong = |near: &str| {
            format!("{text:?} does not name a header; one such as {near:?} is expected")
        };
        let Some(name) = text.strip_prefix(KIND) else {
            // A name without `header:` is the usual mistake, so the error shows the name with `header:`.
            let near: Result<HeaderName, _> = text.parse();
            return Err(wrong(
                &near.map_or_else(|_| format!("{KIND}x-user"), |name| format!("{KIND}{name}")),
            ));
        };
        let name: HeaderName = name.parse().map_err(|_| wrong("header:x-user"))?;
        if OTHERS.contains(&name) {
            return Err(format!(
                "{name} does not name a user; a header that your front sets, such as \"header:x-user\", \
                 is expected"
            ));
        }
        Ok(name)
    }

    fn spell(name: &HeaderName) -> String {
        format!("{KIND}{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_named_behind_its_kind() {
        let name = PrincipalHeader::read("header:X-User").unwrap();
        assert_eq!(PrincipalHeader::spell(&name), "header:x-user");
        for (wrong, near) in [
            ("X-User", "\"header:x-user\" is expected"),
            ("header:", "\"header:x-user\" is expected"),
            ("header:a b", "\"header:x-user\" is expected"),
            ("header:authorization", "authorization does not name a user"),
        ] {
            let error = PrincipalHeader::read(wrong).unwrap_err();
            assert!(error.contains(near), "{error}");
        }
    }
}
