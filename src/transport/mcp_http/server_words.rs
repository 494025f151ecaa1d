//! What a response says that is not a success: its text, and the time after which to retry.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

/// Limit of the characters of a server's text that are shown.
const WORDS_MAX: usize = 200;

/// Names of members of JSON errors that have a text for people: those of JSON-RPC, of OAuth (RFC 6749), of web
/// frameworks and of RFC 9457, in the order in which they are searched.
const MEMBERS: [&str; 6] = ["message", "error_description", "detail", "error", "errors", "title"];

/// Limit of the time in `Retry-After` that is passed on: a day. A longer time does not help a caller.
const RETRY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the status of a response that is not a success, with the text of its body.
pub(crate) fn refused(status: StatusCode, body: &[u8]) -> String {
    let said = words(body).map(|words| format!(" and the words {words:?}"));
    format!("the server answered with HTTP status {status}{}", said.unwrap_or_default())
}

/// Returns the end of a sentence about an error: when to retry, in seconds.
pub(crate) fn try_again(seconds: Option<u64>) -> String {
    seconds.map(|seconds| format!("; try again in {seconds} s")).unwrap_or_default()
}

/// Returns the text in the body of an error: plain text, or a member of a JSON object; at most [`WORDS_MAX`]
/// characters, on one line. `None` for an empty body, for HTML, and for JSON without a text.
fn words(body: &[u8]) -> Option<String> {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => words_of(&value)?.to_owned(),
        // A body that is not JSON may be plain text. HTML, such as the error page of a front, does not help a model.
        Err(_) => std::str::from_utf8(body).ok().filter(|text| is_plain(text))?.to_owned(),
    };
    let parts = text.split(|one: char| one.is_whitespace() || one.is_control());
    let mut words = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(WORDS_MAX) {
        words.truncate(end);
        words.push('…');
    }
    (!words.is_empty()).then_some(words)
}

/// Whether text is for people: neither HTML nor JSON that was cut off.
fn is_plain(text: &str) -> bool {
    !text.trim_start().starts_with(['<', '{', '['])
}

fn words_of(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Object(members) => {
            MEMBERS.iter().find_map(|name| members.get(*name).and_then(words_of))
        }
        Value::Array(values) => values.first().and_then(words_of),
        _ => None,
    }
}

/// Returns the time after which the server wants the request repeated, in whole seconds: `Retry-After` in seconds or as
/// a date (RFC 9110, section 10.2.3). `None` if the header is missing, or the time is longer than a day.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            // A date in the past means now.
            let wait = httpdate::parse_http_date(text).ok()?.duration_since(now);
            wait.unwrap_or_default().as_secs_f64().ceil() as u64
        }
    };
    (seconds <= RETRY_MAX.as_secs()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn words_are_found_in_text_and_in_json() {
        for (body, expected) in [
            ("Too many\n requests \u{7}", Some("Too many requests")),
            (r#"{"message":"slow down"}"#, Some("slow down")),
            (r#"{"error":"slow_down","error_description":"wait a bit"}"#, Some("wait a bit")),
            (r#"{"jsonrpc":"2.0","error":{"code":1,"message":"full"},"id":null}"#, Some("full")),
            (r#"{"detail":"no quota"}"#, Some("no quota")),
            (r#"{"detail":[{"msg":"x"}],"title":"Bad"}"#, Some("Bad")),
            (r#"{"errors":[{"message":"first"},{"message":"second"}]}"#, Some("first")),
            (r#""quoted""#, Some("quoted")),
            (r#"{"code":7}"#, None),
            (r#"{"message":"cut of"#, None),
            ("<html>503</html>", None),
            ("", None),
            (" \n", None),
        ] {
            assert_eq!(words(body.as_bytes()).as_deref(), expected, "{body}");
        }
        assert_eq!(words(b"\xff\xfe"), None);
        let long = words("ü".repeat(300).as_bytes()).unwrap();
        assert_eq!(long, "ü".repeat(200) + "…");
    }

    #[test]
    fn the_time_to_try_again_is_read_in_both_forms() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, expected) in [
            ("17", Some(17)),
            ("0", Some(0)),
            (" 5 ", Some(5)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:40:00 GMT", Some(0)),
            ("Sun, 06 Nov 2094 08:40:00 GMT", None),
            ("99999999999999999999", None),
            ("86401", None),
            ("-1", None),
            ("soon", None),
        ] {
            let headers =
                HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(value))]);
            assert_eq!(retry_after(&headers, now), expected, "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
