//! W3C Trace Context: the trace that a client names in a request.

/// Limit of the bytes of `tracestate` that are kept. A longer value is left out, as W3C Trace Context allows.
pub const STATE_MAX: usize = 512;

/// Limit of the entries of `tracestate`. A value with more entries is ignored.
const MEMBERS_MAX: usize = 32;

/// Limit of the characters of one key or value in `tracestate`. A longer entry makes the whole value invalid.
const WORD_MAX: usize = 256;

/// The trace that a request belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The `trace-id`.
    pub trace: [u8; 16],
    /// The `parent-id`, which is the client's span that made the request.
    pub parent: [u8; 8],
    /// Whether the client records the trace.
    pub sampled: bool,
    /// The `tracestate`, if it is valid: values of tracing systems, which only these systems understand.
    pub state: Option<Box<str>>,
}

impl TraceContext {
    /// Reads `traceparent`, and `tracestate` from any number of fields. `None` if `traceparent` is invalid. An invalid
    /// `tracestate` is only left out.
    pub fn read<'a>(parent: &[u8], state: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        // The form is: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
        let (known, rest) = parent.split_at_checked(55)?;
        let [version @ .., b'-'] = known.get(..3)? else { return None };
        let [version] = from_hex::<1>(version)?;
        let ends = match version {
            0 => rest.is_empty(),
            // W3C Trace Context, 3.2.2: version 255 is invalid.
            0xff => false,
            // Later versions may have more fields.
            _ => matches!(rest, [] | [b'-', ..]),
        };
        let dashed = known.get(35) == Some(&b'-') && known.get(52) == Some(&b'-');
        if !ends || !dashed {
            return None;
        }
        let trace = from_hex::<16>(known.get(3..35)?)?;
        let parent = from_hex::<8>(known.get(36..52)?)?;
        let [flags] = from_hex::<1>(known.get(53..)?)?;
        // W3C Trace Context, 3.2.2: ids that consist only of zeros are invalid.
        if trace == [0; 16] || parent == [0; 8] {
            return None;
        }
        Some(Self { trace, parent, sampled: flags & 1 == 1, state: state_of(state) })
    }

    /// Returns the `trace-id` as text.
    pub fn trace_id(&self) -> String {
        to_hex(&self.trace)
    }
}

/// Writes bytes as lowercase hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(if half < 10 { b'0' + half } else { b'a' + half - 10 });
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

fn from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Joins the fields, without empty entries; `None` if the result is empty or not a `tracestate`.
fn state_of<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<Box<str>> {
    let mut state = String::new();
    let mut keys: Vec<&str> = Vec::new();
    for field in fields {
        for member in std::str::from_utf8(field).ok()?.split(',') {
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            if !is_key(key) || !is_value(value) || keys.contains(&key) {
                return None;
            }
            keys.push(key);
            if !state.is_empty() {
                state.push(',');
            }
            state.push_str(member);
            if keys.len() > MEMBERS_MAX || state.len() > STATE_MAX {
                return None;
            }
        }
    }
    (!state.is_empty()).then(|| state.into())
}

fn is_key(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = |byte: u8| plain(byte) || b"_-*/@".contains(&byte);
    key.len() <= WORD_MAX && key.bytes().next().is_some_and(plain) && key.bytes().all(fits)
}

fn is_value(value: &str) -> bool {
    let fits = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    (1..=WORD_MAX).contains(&value.len()) && value.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    fn read(parent: &str) -> Option<TraceContext> {
        TraceContext::read(parent.as_bytes(), [])
    }

    /// Checks how `text` is read; `T` stands for a trace and `P` for a parent. `Some(sampled)`: the text is valid.
    #[track_caller]
    fn check(text: &str, expected: Option<bool>) {
        let text = text.replace('T', TRACE).replace('P', PARENT);
        let found = read(&text);
        assert_eq!(found.as_ref().map(|found| found.sampled), expected, "{text}");
        if let Some(found) = found {
            assert_eq!((found.trace_id(), to_hex(&found.parent)), (TRACE.into(), PARENT.into()));
        }
    }

    #[test]
    fn traceparent_is_read_as_w3c_says() {
        check("00-T-P-01", Some(true));
        check("00-T-P-00", Some(false));
        // Only the first flag is defined.
        check("00-T-P-09", Some(true));
        check("00-T-P-fe", Some(false));
        check("00-T-P-0", None);
        check("00-T-P-01-", None);
        check("00-T-P-01-more", None);
        check("00-T-P-01 ", None);
        check(" 00-T-P-01", None);
        check("00-T-P", None);
        check("", None);
        check("0-T-P-01", None);
        check("0x-T-P-01", None);
        check("00_T-P-01", None);
        check("00-T_P-01", None);
        check("00-T-P_01", None);
        check("00-T-P-0g", None);
        check("00-T-P-0A", None);
        check("00-0AF7651916CD43DD8448EB211C80319C-P-01", None);
        check("00-T-B7AD6B7169203331-01", None);
        check("00-00000000000000000000000000000000-P-01", None);
        check("00-T-0000000000000000-01", None);
        check("00-T-b7ad6b716920333-001", None);
        // Later versions may have more fields after those of this version.
        check("01-T-P-01", Some(true));
        check("cc-T-P-01-what-comes-later", Some(true));
        check("cc-T-P-00-", Some(false));
        check("cc-T-P-01.later", None);
        check("cc-T-P-0", None);
        check("ff-T-P-01", None);
        check("FE-T-P-01", None);
    }

    #[track_caller]
    fn check_state(fields: &[&str], expected: Option<&str>) {
        let parent = format!("00-{TRACE}-{PARENT}-01");
        let fields = fields.iter().map(|field| field.as_bytes());
        let found =
            TraceContext::read(parent.as_bytes(), fields).expect("a bad state harms nothing");
        assert_eq!(found.state.as_deref(), expected);
    }

    #[test]
    fn tracestate_is_read_as_w3c_says() {
        check_state(&[], None);
        check_state(&["", " ", ",,"], None);
        check_state(&["congo=t61rcWkgMzE"], Some("congo=t61rcWkgMzE"));
        check_state(&["a=1 ,\tb=2,, c@d/e=x y"], Some("a=1,b=2,c@d/e=x y"));
        check_state(&["a=1,", "b=2"], Some("a=1,b=2"));
        check_state(&["0a=1"], Some("0a=1"));
        check_state(&["A=1"], None);
        check_state(&["_a=1"], None);
        check_state(&["a"], None);
        check_state(&["a="], None);
        check_state(&["=1"], None);
        check_state(&["a=1=2"], None);
        check_state(&["a=1,a=2"], None);
        check_state(&["a=é"], None);
        check_state(&["a=1\n"], None);
        check_state(&["a=\u{1b}[31m"], None);
        let many = |count| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        check_state(&[&many(32)], Some(&many(32)));
        check_state(&[&many(33)], None);
        let long = |length| format!("a={}", "x".repeat(length));
        check_state(&[&long(256)], Some(&long(256)));
        check_state(&[&long(257)], None);
        check_state(&[&long(256), "b=1", &long(256).replace("a=", "c=")], None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            version in 0_u8..=254,
            trace: [u8; 16],
            parent: [u8; 8],
            flags: u8,
            more in "(-[ -~]{0,40})?",
        ) {
            let more = if version == 0 { String::new() } else { more };
            let text = format!("{version:02x}-{}-{}-{flags:02x}{more}", to_hex(&trace), to_hex(&parent));
            let expected = (trace != [0; 16] && parent != [0; 8])
                .then_some(TraceContext { trace, parent, sampled: flags % 2 == 1, state: None });
            prop_assert_eq!(read(&text), expected);
        }

        /// Any text that can be read can be written again from the result.
        #[test]
        fn nothing_else_is_read(
            parent in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..80),
                "[0-9a-f]{2}-[0-9a-f]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{1,3}[-x]?".prop_map(String::into_bytes),
            ],
            state in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..3),
        ) {
            let state = state.iter().map(Vec::as_slice);
            if let Some(found) = TraceContext::read(&parent, state) {
                let text = std::str::from_utf8(&parent[..55]).unwrap();
                let again = format!("{}-{}-{}-", &text[..2], found.trace_id(), to_hex(&found.parent));
                prop_assert_eq!(&text[..53], again);
                prop_assert_eq!(u8::from_str_radix(&text[53..], 16).unwrap() % 2 == 1, found.sampled);
                if let Some(state) = found.state {
                    prop_assert!(state.len() <= STATE_MAX && state.contains('='));
                    prop_assert!(state.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                }
            }
        }
    }
}
