//! The signature of a call: two calls with equal signatures ask for the same work.

use serde_json::{Map, Value};

use crate::protocol::exact_value::{exact_params, remove_empty_meta};
use crate::protocol::jsonrpc::Message;

/// Limit of the length of a call, in bytes, that is compared with other calls. A longer call joins no other call.
const COMPARED_MAX: usize = 64 << 10;

/// The beginning of a JSON Pointer in `ignore` that names a member of the request's `_meta`.
const IN_META: &str = "/_meta/";

/// What a call asks for: a tool, and the parameters of the call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Signature {
    pub(crate) tool: String,
    params: Value,
}

impl Signature {
    /// Returns the signature of a `tools/call`. It leaves out the members of `_meta` that only name the call, and the
    /// members that `ignore` names. `None` if JSON readers could read the call in two ways, or the call is longer than
    /// [`COMPARED_MAX`].
    pub(crate) fn read(tool: &str, message: &Message, ignore: &[String]) -> Option<Self> {
        let text = message.raw();
        if text.len() > COMPARED_MAX {
            return None;
        }
        // Two calls that look equal may mean different work if a number in them is rounded, or a member is repeated.
        let mut params = exact_params(text)?;
        ignore.iter().filter(|it| it.starts_with(IN_META)).for_each(|it| remove(&mut params, it));
        // Members of `_meta` other than the token are part of the signature, because they may change what the call asks
        // for.
        remove_empty_meta(&mut params);
        // A call without `arguments` asks for the same work as a call with `{}`.
        let members = params.as_object_mut()?;
        let arguments = members.entry("arguments").or_insert_with(|| Value::Object(Map::new()));
        ignore.iter().for_each(|pointer| remove(arguments, pointer));
        Some(Self { tool: tool.to_owned(), params })
    }
}

/// Removes the member that `pointer` names.
fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    // RFC 6901, section 4: `~1` is replaced before `~0`. In the other order `~01` would become `/` instead of `~1`.
    let name = name.replace("~1", "/").replace("~0", "~");
    if let Some(Value::Object(members)) = value.pointer_mut(parent) {
        members.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn signature(arguments: &str, ignore: &[&str]) -> Option<Signature> {
        call(&format!(r#"{{"name":"work","arguments":{arguments}}}"#), ignore)
    }

    fn call(params: &str, ignore: &[&str]) -> Option<Signature> {
        whole(&format!(r#"{{"id":1,"method":"tools/call","params":{params}}}"#), ignore)
    }

    fn whole(text: &str, ignore: &[&str]) -> Option<Signature> {
        let ignore: Vec<String> = ignore.iter().map(|one| (*one).to_owned()).collect();
        Signature::read("work", &Message::parse(Bytes::copy_from_slice(text.as_bytes())), &ignore)
    }

    #[test]
    fn names_of_a_call_in_meta_are_not_its_work() {
        let plain = call(r#"{"name":"work"}"#, &[]);
        assert!(plain.is_some());
        for meta in [
            r#"{"progressToken":7}"#,
            r#"{"traceparent":"00-a-b-01","tracestate":"a=b","baggage":"user=1"}"#,
            r#"{"claudecode/toolUseId":"toolu_1"}"#,
            "{}",
        ] {
            let params = format!(r#"{{"_meta":{meta},"name":"work","arguments":{{}}}}"#);
            assert_eq!(call(&params, &[]), plain, "{meta}");
        }
        let session = r#"{"_meta":{"example.org/session":"s1"},"name":"work"}"#;
        assert_eq!(call(session, &["/_meta/example.org~1session"]), plain);
    }

    #[test]
    fn other_parameters_are_other_work() {
        let plain = call(r#"{"name":"work"}"#, &[]);
        for params in [
            r#"{"name":"work","_meta":{"example.org/user":"ada"}}"#,
            r#"{"name":"work","_meta":{"io.modelcontextprotocol/logLevel":"debug"}}"#,
            r#"{"name":"work","_meta":null}"#,
            r#"{"name":"work","requestState":"x"}"#,
            r#"{"name":"work","inputResponses":{}}"#,
            r#"{"name":"work","_meta":{"nested":{"progressToken":1}}}"#,
        ] {
            let other = call(params, &[]);
            assert!(other.is_some() && other != plain, "{params}");
        }
    }

    #[test]
    fn a_call_that_repeats_a_member_anywhere_has_no_signature() {
        for text in [
            r#"{"id":1,"params":{"name":"work","arguments":{"a":1},"arguments":{"a":2}}}"#,
            r#"{"id":1,"params":{"name":"work","arguments":{},"argument\u0073":{}}}"#,
            r#"{"id":1,"params":{"name":"work","name":"other"}}"#,
            r#"{"id":1,"params":{"name":"work"},"params":{"name":"work"}}"#,
            r#"{"id":1,"id":2,"params":{"name":"work"}}"#,
            r#"{"id":1,"params":{"name":"work","_meta":{"progressToken":1,"progressToken":2}}}"#,
            r#"{"id":1,"params":{"name":"work","_meta":{},"_meta":{}}}"#,
        ] {
            assert_eq!(whole(text, &[]), None, "{text}");
        }
    }

    #[test]
    fn the_same_arguments_in_another_spelling_are_the_same_work() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [ true , null ], "a" : 1 }"#),
            (r#"{"a":"é"}"#, r#"{"a":"\u00e9"}"#),
            (r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"c":2,"b":1}}"#),
        ] {
            assert!(signature(one, &[]).is_some(), "{one}");
            assert_eq!(signature(one, &[]), signature(other, &[]), "{one} {other}");
        }
    }

    #[test]
    fn other_arguments_are_other_work() {
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":0}"#, r#"{"a":false}"#),
            (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#),
        ] {
            assert_ne!(signature(one, &[]), signature(other, &[]), "{one} {other}");
        }
    }

    #[test]
    fn arguments_that_readers_read_differently_have_no_signature() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(COMPARED_MAX));
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(128), "]".repeat(128));
        for arguments in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":1,"\u0062":2}}"#,
            r#"[{"a":1,"a":1}]"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":18446744073709551617}"#,
            r#"{"a":9007199254740993.0}"#,
            r#"{"a":-0.0}"#,
            &deep,
            r#"{"a":1e999}"#,
            &long,
        ] {
            assert_eq!(signature(arguments, &[]), None, "{arguments:.60}");
        }
        let bad =
            Bytes::from_static(b"{\"params\":{\"name\":\"work\",\"arguments\":{\"a\":\"\xff\"}}}");
        assert_eq!(Signature::read("work", &Message::parse(bad), &[]), None);
    }

    #[test]
    fn members_that_may_differ_are_left_out() {
        let one = r#"{"a":1,"meta":{"time":1,"x/y":2},"list":[{"n":1}]}"#;
        let other = r#"{"a":1,"meta":{"time":7},"list":[{"n":2}]}"#;
        assert_ne!(signature(one, &["/meta/time"]), signature(other, &["/meta/time"]));
        let ignore = ["/meta/time", "/meta/x~1y", "/list/0/n", "/none/here"];
        assert_eq!(signature(one, &ignore), signature(other, &ignore));
    }
}
