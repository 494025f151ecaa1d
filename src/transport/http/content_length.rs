//! Writes the header `Content-Length` in the only form that all readers understand in the same way.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue};

/// Writes the length of a body in its simplest form, because readers treat `5, 5`, two headers with `5`, and `005`
/// differently (RFC 9110, 8.6), and HTTP/2 readers reset the stream. An invalid length is removed; here only a message
/// without a body can have one.
pub(crate) fn write_once(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let Some(first) = lines.next() else { return };
    let is_plain =
        !first.is_empty() && first.iter().all(u8::is_ascii_digit) && !first.starts_with(b"0")
            || first == b"0";
    if is_plain && lines.next().is_none() {
        return;
    }
    let lines = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let read = |text: &[u8]| {
        let is_number = text.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(text).ok().filter(|_| is_number)?.parse::<u64>().ok()
    };
    let mut lengths =
        lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).map(read);
    let length =
        lengths.next().flatten().filter(|length| lengths.all(|other| other == Some(*length)));
    match length {
        Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;
    use crate::config::routes::HeaderRules;
    use crate::transport::http::headers::{Onward, Passage, request_headers, response_headers};
    use crate::transport::http::via::Via;

    #[test]
    fn a_list_of_equal_lengths_passes_as_one_in_both_directions() {
        let (via, rules) = (Via::named(7), HeaderRules::default());
        let received = Version::HTTP_11;
        let passage =
            Passage { via: &via, rules: &rules, received, body_changes: false, traffic: None };
        let to = Onward { host: None, opaque: false, replaces_authorization: false };
        let list = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("5, 5"))]);
        assert_eq!(response_headers(list.clone(), &passage)[CONTENT_LENGTH], "5");
        assert_eq!(request_headers(list, &passage, &to)[CONTENT_LENGTH], "5");
    }

    #[test]
    fn a_length_is_written_once_and_one_that_is_none_is_left_out() {
        for (received, sent) in [
            (&["12"][..], Some("12")),
            (&["0"], Some("0")),
            (&[], None),
            (&["12, 12"], Some("12")),
            (&["12,12 ,\t12"], Some("12")),
            (&["12", "12"], Some("12")),
            (&["012"], Some("12")),
            (&["00"], Some("0")),
            (&["12, 13"], None),
            (&["12", "13"], None),
            (&["12,"], None),
            (&["+12"], None),
            (&["12 x"], None),
            (&[""], None),
            (&["99999999999999999999, 99999999999999999999"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in received {
                headers.append(CONTENT_LENGTH, HeaderValue::from_static(value));
            }
            write_once(&mut headers);
            let lines: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
            assert_eq!(lines, sent.into_iter().collect::<Vec<_>>(), "{received:?}");
        }
    }
}
