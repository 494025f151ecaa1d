//! A client of 2026-07-28 before a server of 2024-11-05, through `milepost wrap` and a real child.

use serde_json::{Value, json};

use crate::support::messages::{modern, modern_with};
use crate::support::session::Session;

/// A server with one tool, which reports once and asks for the roots of its client.
const SERVER: &str = r#"
while read -r line; do
    case $line in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":"milepost-initialize","result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
        *'io.modelcontextprotocol'*) echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"what is _meta?"}}' ;;
        *'"tools/call"'*)
            echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1,"total":2}}'
            sleep 1
            echo '{"jsonrpc":"2.0","id":7,"method":"roots/list"}' ;;
        *'"roots"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}' ;;
    esac
done
"#;

fn next(session: &mut Session) -> Value {
    serde_json::from_str(&session.line()).unwrap()
}

#[test]
fn a_client_of_2026_reaches_a_command_of_2024() {
    crate::support::within_tries(|| {
        let mut session = Session::wrap(&["--modern", "--no-heartbeat"], &["sh", "-c", SERVER]);
        let with_roots = |text: String| {
            text.replace(r#"clientCapabilities":{}"#, r#"clientCapabilities":{"roots":{}}"#)
        };
        session.tell(&with_roots(modern(r#""d""#, "server/discover", "")));
        let discovered = next(&mut session);
        assert_eq!(
            discovered["result"]["supportedVersions"],
            json!(["2026-07-28"]),
            "{discovered}"
        );
        session.tell(&with_roots(modern_with(r#""t""#, 1, "tools/call", r#""name":"work","#)));
        let progress = next(&mut session);
        assert_eq!(
            (&progress["params"]["progress"], &progress["params"]["total"]),
            (&json!(1), &json!(2))
        );
        let asked = next(&mut session);
        assert_eq!(
            (&asked["id"], &asked["result"]["resultType"]),
            (&json!(1), &json!("input_required"))
        );
        let again = format!(
            r#""name":"work","requestState":{},"inputResponses":{{"ask-1":{{"roots":[]}}}},"#,
            asked["result"]["requestState"]
        );
        session.tell(&with_roots(modern_with(r#""u""#, 2, "tools/call", &again)));
        let answer = next(&mut session);
        assert_eq!(
            (&answer["id"], &answer["result"]["resultType"]),
            (&json!(2), &json!("complete"))
        );
        session.tell(&modern(3, "ping", ""));
        assert_eq!(next(&mut session)["error"]["code"], -32601);
        assert_eq!(session.finish().1, Some(0));
    });
}
