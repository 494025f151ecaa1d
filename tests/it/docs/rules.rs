//! Every rule that refuses, drops or leaves out something for safety has a key, a value of the key that switches the
//! rule off, a counter, and a line in the documents.

use crate::commands::route_files::parse;
use crate::http::rig::Rig;
use crate::observe::metrics::page::Page;
use crate::support::home;

/// A rule. A rule without key and value cannot be turned off, because no user would gain by that.
struct Rule {
    /// The end of a route file that switches the rule off. `STDIO`, `HTTP` and `SSE` stand for routes.
    off: &'static str,
    /// The counter; empty where the log or `check` tells of the rule.
    counter: &'static str,
    /// A value of its label, if the metrics show the value from the start.
    value: Option<&'static str>,
    /// The page that tells of the rule in these words.
    page: &'static str,
    words: &'static str,
}

const REFUSED: &str = "requests_refused";
const BODIES: &str = "bodies_refused";
const MESSAGES: &str = "messages_refused";
const LIMIT: &str = "client_limit";
const ERRORS: &str = "upstream_errors";
const FOREIGN: &str = "forwarded_dropped";

/// Rows: the page, the words, the counter, its value, the file.
macro_rules! rules {
    ($($page:literal $words:literal $counter:expr, $value:expr, $off:literal;)+) => {
        const RULES: &[Rule] = &[$(Rule {
            off: $off,
            counter: $counter,
            value: $value,
            page: $page,
            words: $words,
        },)+];
    };
}

rules! {
    "transports" "`ambiguous-member`" MESSAGES, Some("ambiguous-member"), "STDIO\nupstream.share = false";
    "transports" "`ambiguous-cancel`" MESSAGES, Some("ambiguous-cancel"), "STDIO";
    "transports" "`long-batch`" MESSAGES, Some("long-batch"), "STDIO\nupstream.share = false";
    "security" "`check_pages`" REFUSED, None, "[server]\ncheck_pages = false";
    "security" "`allowed_hosts`" REFUSED, None, "[server]\ninsecure = true";
    "operating" "admin-token" REFUSED, None, "[admin]\nmake_token = false";
    "route-file" "`body_timeout`" BODIES, Some("too-long"), "HTTP\nbody_timeout = \"off\"";
    "route-file" "`body_min_rate`" BODIES, Some("too-slow"), "HTTP\nbody_min_rate = 0";
    "route-file" "`max_request_bytes`" BODIES, Some("too-large"), "HTTP\nmax_request_bytes = 9223372036854775807";
    "route-file" "max_unread_bytes" BODIES, Some("no-room"), "[server]\nmax_unread_bytes = 9223372036854775807";
    "route-file" "max_spilled_bytes" "unspilled_answers", None, "[server]\nmax_spilled_bytes = 9223372036854775807";
    "route-file" "max_kept_bytes" BODIES, Some("full"), "[server]\nmax_kept_bytes = 9223372036854775807";
    "operating" "`max_client_connections`" LIMIT, Some("connections"), "[server]\nmax_client_connections = 0";
    "operating" "`max_client_streams`" LIMIT, Some("streams"), "[server]\nmax_client_streams = 0";
    "operating" "`max_client_sessions`" LIMIT, Some("sessions"), "[server]\nmax_client_sessions = 0";
    "operating" "`max_client_children`" LIMIT, Some("children"), "[server]\nmax_client_children = 0";
    "operating" "`max_client_child_starts`" LIMIT, Some("child_starts"), "[server]\nmax_client_child_starts = 0";
    "operating" "`upstream.max_shared_calls`" LIMIT, Some("shared_calls"), "STDIO\nupstream.max_shared_calls = 0";
    "upgrading" "`http1_idle_timeout`" "idle_connections_closed", None, "[server]\nhttp1_idle_timeout = \"off\"";
    "upgrading" "`http2_idle_timeout`" "idle_connections_closed", None, "[server]\nhttp2_idle_timeout = \"off\"";
    "security" "`forwarded = \"append\"`" FOREIGN, None, "HTTP\nforwarded = \"pass\"";
    "operating" "principal = \"header:x-user\"" FOREIGN, None, "[server]\ntrusted_proxies = []";
    "route-file" "`session_idle_timeout`" "sessions", Some("own"), "SSE\nsession_idle_timeout = \"off\"";
    "security" "8 MiB wait for each response" "dropped_mail", None, "HTTP\nown_get = false";
    "security" "the oldest get an error" "unread_requests", None, "STDIO";
    "route-file" "`max_streams`" "streams", None, "HTTP\nmax_streams = 9223372036854775807";
    "route-file" "max_children" "children", None, "STDIO\nupstream.max_children = 9223372036854775807";
    "security" "every endpoint has the origin of its stream" ERRORS, Some("endpoint"), "SSE";
    "security" "streams are counted" ERRORS, Some("streams-full"), "HTTP\nupstream.http2 = false";
    "security" "`upstream.inherit_env`" "", None, "STDIO\nupstream.inherit_env = \"all\"";
    "operating" "`server.raise_descriptors`" "", None, "[server]\nraise_descriptors = false";
    "upgrading" "[\"system\", \"ca.pem\"]" "", None, "HTTP\nupstream.ca_file = [\"system\", \"certificate.pem\"]";
    "route-file" "cookie_path" "", None, "HTTP\nheaders.response = { cookie_path = false }";
    "route-file" "`--strict-files`" "", None, "STDIO";
}

/// The route file in which a rule is off.
fn file(off: &str) -> String {
    let route = |upstream: &str| format!("[[route]]\npath = \"/a\"\n{upstream}");
    off.replace("STDIO", &route("upstream.command = [\"sh\"]"))
        .replace("HTTP", &route("upstream.url = \"https://a.example/mcp\""))
        .replace("SSE", &route("upstream.sse = \"https://a.example/sse\""))
}

#[tokio::test(start_paused = true)]
async fn every_rule_has_a_key_an_off_switch_a_counter_and_a_line_in_the_documents() {
    let page = Page::read(&Rig::new("").metrics());
    let read = |name: &str| {
        std::fs::read_to_string(home().join("docs").join(format!("{name}.md"))).unwrap()
    };
    let (settings, operating) = (read("settings"), read("operating"));
    for rule in RULES {
        let text = file(rule.off);
        if let Err(error) = parse(&text) {
            panic!("{error}\n{text}");
        }
        if let Some((_, key)) = rule.off.split_once('\n') {
            let key = key.split(" = ").next().unwrap();
            let key = key.rsplit('.').next().unwrap();
            let is_there = [format!("### `{key}`"), format!("- `{key}`: ")];
            let is_there = is_there.iter().any(|line| settings.contains(line));
            assert!(is_there || key == "response", "{key} is not in docs/settings.md");
        }
        if !rule.counter.is_empty() {
            let name = format!("milepost_{}", rule.counter);
            // The counters of a listener appear with the first refusal: `refused_requests_are_counted`.
            let is_there = page.families.contains_key(&name) || rule.counter == REFUSED;
            assert!(is_there, "there is no {name}");
            let sample = [format!("| `{name}_total` |"), format!("| `{name}` |")];
            let is_told = sample.iter().any(|sample| operating.contains(sample));
            assert!(is_told, "docs/operating.md does not tell of {name}");
            if let Some(value) = rule.value {
                let labels = ["rule", "reason", "limit", "kind"];
                let names = [format!("{name}_total"), name.clone()];
                let has = |name: &String| labels.iter().any(|label| page.has(name, label, value));
                assert!(names.iter().any(has), "{name} has no {value}");
            }
        }
        let told = read(rule.page).contains(rule.words);
        assert!(told, "docs/{}.md does not tell of {}", rule.page, rule.words);
    }
}
