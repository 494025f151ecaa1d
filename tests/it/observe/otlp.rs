//! Traces: the spans that a collector gets, and that no call suffers for them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use milepost::observe::otlp::settings;
use milepost::observe::otlp::settings::{BadVariable, TraceSettings};
use milepost::protocol::trace_context::to_hex;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tempfile::TempDir;

use crate::support::exchange::Exchange;
use crate::support::fake::{self, Asked};
use crate::support::session::Session;
use crate::support::{MILEPOST, secrets, until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Answers `initialize` and calls of `quick`; answers `slow` after progress, repeated progress, progress in another
/// dialect, and 300 ms; answers `fails` with an error, and `bad` with a result that is marked as an error.
const SERVER: &str = r#"
while read -r line; do
    id=$(printf '%s\n' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
    case "$line" in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}' ;;
        *'"slow"'*)
            same='{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1,"message":"a"}}'
            echo "$same"; sleep 0.1; echo "$same"; sleep 0.1
            echo '{"jsonrpc":"2.0","method":"tools/progress","params":{"progressToken":"t","progress":2,"message":"b"}}'
            sleep 0.3
            echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
        *'"fails"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32602,"message":"secret words"}}' ;;
        *'"bad"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[],"isError":true}}' ;;
        *) [ -z "$id" ] || echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
    esac
done
"#;

/// A collector that answers as a test wants, and keeps the spans.
struct Collector {
    address: String,
    got: Arc<Mutex<Vec<Asked>>>,
}

impl Collector {
    /// `answer` is told how many requests there were before.
    fn start(answer: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let got = Arc::<Mutex<Vec<Asked>>>::default();
        let keeps = Arc::clone(&got);
        let address = fake::listen(move |asked, stream| {
            let asked = Asked {
                method: asked.method.clone(),
                path: asked.path.clone(),
                headers: asked.headers.clone(),
                body: asked.body.clone(),
            };
            let before = {
                let mut got = keeps.lock().unwrap();
                got.push(asked);
                got.len() - 1
            };
            answer(before, stream);
        });
        Self { address, got }
    }

    fn willing() -> Self {
        Self::start(|_, stream| takes(stream))
    }

    fn requests(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    fn exports(&self) -> Vec<ExportTraceServiceRequest> {
        let got = self.got.lock().unwrap();
        let decoded = got.iter().map(|asked| {
            let mut body = asked.body.clone();
            if asked.header("content-encoding") == Some("gzip") {
                body.clear();
                flate2::read::GzDecoder::new(&asked.body[..]).read_to_end(&mut body).unwrap();
            }
            let read = ExportTraceServiceRequest::decode(&body[..]).unwrap();
            // The official types know every byte: they write the same bytes.
            assert_eq!(read.encode_to_vec().len(), body.len());
            read
        });
        decoded.collect()
    }

    fn spans(&self) -> Vec<Span> {
        let exports = self.exports();
        let resources = exports.into_iter().flat_map(|export| export.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

fn takes(stream: &mut TcpStream) {
    fake::say(stream, "200 OK", "content-type: application/x-protobuf\r\n", "");
}

/// `milepost wrap` that tells its spans to a collector.
fn wrap(to: &str, variables: &[(&str, &str)]) -> Session {
    let mut command = Command::new(MILEPOST);
    command.args(["wrap", "--", "sh", "-c", SERVER]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{to}"));
    Session::start(command.envs(variables.iter().copied()))
}

fn call(id: u64, tool: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"a":"secret words"}},"_meta":{{{meta}}}}}}}"#
    )
}

fn answered(session: &mut Session, id: u64, line: &str) {
    session.tell(line);
    session.lines_until(&format!(r#""id":{id},"#));
}

fn attributes(list: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(whether) => whether.to_string(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => format!("{number:.1}"),
        other => panic!("{other:?}"),
    };
    list.iter()
        .map(|pair| (&*pair.key, text(pair.value.as_ref().unwrap().value.as_ref().unwrap())))
        .collect()
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// A conversation with every kind of call: when `slow` was called and answered, and the log.
fn conversation(collector: &Collector) -> (u64, u64, String) {
    let mut session = wrap(
        &collector.address,
        &[
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret%20words, x-other=1"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a%2Cb,service.name=other"),
            ("OTEL_SERVICE_NAME", "mine"),
        ],
    );
    let begin = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"visitor","version":"3"}}}"#;
    answered(&mut session, 1, begin);
    let before = now();
    let meta = format!(
        r#""progressToken":"t","traceparent":"00-{TRACE}-{PARENT}-01","tracestate":"congo=t61rcWkgMzE","baggage":"secret=words""#
    );
    answered(&mut session, 2, &call(2, "slow", &meta));
    let after = now();
    answered(&mut session, 3, &call(3, "fails", ""));
    answered(&mut session, 4, &call(4, "bad", ""));
    let listed = format!(
        r#"{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{{"_meta":{{"traceparent":"00-{TRACE}-{PARENT}-01"}}}}}}"#
    );
    answered(&mut session, 5, &listed);
    let (_, code, log) = session.finish();
    assert_eq!(code, Some(0), "{log}");
    (before, after, log)
}

#[test]
fn a_call_through_wrap_is_a_span_of_its_clients_trace() {
    crate::support::within_tries(|| {
        let collector = Collector::willing();
        let (before, after, log) = conversation(&collector);
        // The collector has the spans, although the exporter would have waited longer for a full batch.
        let spans = collector.spans();
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        let expected = ["tools/call slow", "tools/call fails", "tools/call bad", "tools/list"];
        assert_eq!(names, expected, "{log}");

        let slow = &spans[0];
        assert_eq!(
            (to_hex(&slow.trace_id), to_hex(&slow.parent_span_id)),
            (TRACE.into(), PARENT.into())
        );
        assert!(slow.span_id.len() == 8 && slow.span_id != slow.parent_span_id);
        assert_eq!(
            (slow.trace_state.as_str(), slow.kind, slow.flags),
            ("congo=t61rcWkgMzE", 2, 0x301)
        );
        let (start, end) = (slow.start_time_unix_nano, slow.end_time_unix_nano);
        assert!(before <= start && start <= end && end <= after, "{before} {start} {end} {after}");
        assert!(end - start >= 300_000_000, "{}", end - start);
        assert_eq!(slow.status.as_ref().unwrap().code, 0);
        let said = attributes(&slow.attributes);
        for (name, value) in [
            ("mcp.method.name", "tools/call"),
            ("mcp.protocol.version", "2025-06-18"),
            ("gen_ai.tool.name", "slow"),
            ("gen_ai.operation.name", "execute_tool"),
            ("jsonrpc.request.id", "2"),
            ("network.transport", "pipe"),
            ("milepost.client", "visitor 3"),
            ("milepost.outcome", "result"),
            ("milepost.progress.asked", "true"),
            ("milepost.progress.received", "3"),
            ("milepost.progress.sent", "2"),
            ("milepost.progress.withheld", "1"),
            ("milepost.progress.repaired", "1"),
            ("milepost.progress.beats", "0"),
        ] {
            assert_eq!(said.get(name).map(String::as_str), Some(value), "{name} in {said:?}");
        }
        assert!(
            !said.contains_key("milepost.route") && !said.contains_key("error.type"),
            "{said:?}"
        );
        let events: Vec<&str> = slow.events.iter().map(|event| &*event.name).collect();
        let expected = ["first_progress", "longest_silence", "withheld", "repaired"];
        assert_eq!(events, expected.map(|name| format!("milepost.{name}")));
        let within = |at: u64| (start..=end).contains(&at);
        assert!(slow.events.iter().all(|event| within(event.time_unix_nano)), "{slow:?}");
        // The same report within a second is withheld; which reason is found first depends on the time.
        let withheld = attributes(&slow.events[2].attributes);
        assert!(
            ["duplicate", "superseded"].contains(&&*withheld["milepost.reason"]),
            "{withheld:?}"
        );
        assert_eq!(withheld["milepost.count"], "1");
        let silence = attributes(&slow.events[1].attributes)["milepost.silence.longest"].clone();
        // The last notification was delayed for a moment.
        assert!(silence.parse::<f64>().unwrap() >= 0.2, "{silence}");
        assert_eq!(said["milepost.silence.longest"], silence);
        let repaired = attributes(&slow.events[3].attributes);
        assert_eq!((&*repaired["milepost.repair"], &*repaired["milepost.count"]), ("dialect", "1"));
    });
}

#[test]
fn what_fails_is_told_and_one_without_a_trace_begins_its_own() {
    crate::support::within_tries(|| {
        let collector = Collector::willing();
        let (.., log) = conversation(&collector);
        let spans = collector.spans();
        // A call without a trace context begins a new trace.
        let fails = &spans[1];
        assert!(fails.parent_span_id.is_empty() && fails.trace_id.iter().any(|byte| *byte != 0));
        assert_eq!((to_hex(&fails.trace_id) == TRACE, fails.flags), (false, 0x101));
        let said = attributes(&fails.attributes);
        assert_eq!(
            (&*said["error.type"], &*said["rpc.response.status_code"]),
            ("-32602", "-32602")
        );
        let status = fails.status.as_ref().unwrap();
        assert_eq!((status.code, &*status.message), (2, ""));
        assert_eq!(attributes(&spans[2].attributes)["error.type"], "tool_error");
        // The log names the trace of each call.
        for span in &spans[..3] {
            let trace = format!("trace_id=\"{}\"", to_hex(&span.trace_id));
            assert!(log.contains(&trace), "{trace}: {log}");
        }
    });
}

#[test]
fn the_collector_is_told_who_speaks_and_how_it_wants_to_be_asked() {
    crate::support::within_tries(|| {
        let collector = Collector::willing();
        let (.., log) = conversation(&collector);
        let export = &collector.exports()[0].resource_spans[0];
        let resource = attributes(&export.resource.as_ref().unwrap().attributes);
        assert_eq!(
            (&*resource["service.name"], &*resource["telemetry.sdk.name"]),
            ("mine", "opentelemetry")
        );
        assert_eq!(resource["deployment.environment.name"], "a,b");
        assert_eq!(resource["service.instance.id"].len(), 36);
        assert_eq!(export.scope_spans[0].scope.as_ref().unwrap().name, "milepost");
        let got = collector.got.lock().unwrap();
        assert_eq!((&*got[0].method, &*got[0].path), ("POST", "/v1/traces"));
        assert_eq!(got[0].header("content-type"), Some("application/x-protobuf"));
        assert_eq!(got[0].header("x-key"), Some("secret words"));
        let told = String::from_utf8_lossy(&got[0].body);
        assert!(!log.contains("secret") && !told.contains("secret"), "{log}{told}");
    });
}

/// `milepost serve` with an HTTP route to `server` and one to a child.
fn serve(
    folder: &TempDir,
    server: &str,
    to: &str,
    variables: &[(&str, &str)],
) -> (Session, String, String) {
    fs::write(folder.path().join("server.sh"), SERVER).unwrap();
    let routes = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[route]]\npath = \"/http\"\nupstream.url = \"http://{server}/mcp\"\n\
         [[route]]\npath = \"/child\"\nupstream.command = [\"sh\", \"server.sh\"]\nupstream.cwd = {:?}\n",
        folder.path()
    );
    let file = folder.path().join("proxy.toml");
    fs::write(&file, routes).unwrap();
    let mut command = Command::new(MILEPOST);
    command.arg("serve").arg(&file).env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", to);
    let session = Session::start(command.envs(variables.iter().copied()));
    let mut found = [String::new(), String::new()];
    until("it listens", || {
        let log = session.stderr();
        let words = ["listening address=", "listening for operators address="];
        for (found, words) in found.iter_mut().zip(words) {
            let place = log.split(words).nth(1).filter(|rest| rest.contains('\n'));
            let word = place.and_then(|rest| rest.split_whitespace().next());
            *found = word.unwrap_or_default().trim_matches('"').to_owned();
        }
        found.iter().all(|found| !found.is_empty())
    });
    let [address, admin] = found;
    (session, address, admin)
}

fn upstream() -> String {
    fake::listen(|asked, stream| {
        let message: serde_json::Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[]}}}}"#, message["id"]);
        fake::say(stream, "200 OK", "content-type: application/json\r\n", &text);
    })
}

const HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

fn post(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Exchange {
    let headers: Vec<_> = HEADERS.iter().chain(headers).copied().collect();
    let mut answer = Exchange::send(address, "POST", path, &headers, body);
    assert_eq!(answer.status(), 200);
    answer
}

#[test]
fn calls_through_serve_are_spans_of_the_trace_in_their_headers() {
    let collector = Collector::willing();
    let folder = TempDir::new().unwrap();
    let to = format!("http://{}/own/path?x=1", collector.address);
    let variables = [("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"), ("OTEL_BSP_SCHEDULE_DELAY", "50")];
    let (mut session, address, admin) = serve(&folder, &upstream(), &to, &variables);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let other = r#""traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01""#;
    let begin = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let mut begun = post(&address, "/child", &[], begin);
    let id = begun.header("mcp-session-id").unwrap();
    post(&address, "/http", &[("traceparent", &parent)], &call(2, "one", "")).rest();
    post(&address, "/http", &[("traceparent", &parent)], &call(3, "two", other)).rest();
    post(&address, "/http", &[("traceparent", &unsampled)], &call(4, "none", "")).rest();
    let in_session = [("mcp-session-id", &*id), ("traceparent", &*parent)];
    post(&address, "/child", &in_session, &call(5, "three", "")).rest();
    // The spans are exported before the process ends.
    until("three spans are told", || collector.spans().len() == 3);
    let metrics = || Exchange::send(&admin, "GET", "/metrics", &[], "").rest();
    until("they are counted", || metrics().contains("milepost_spans_total{result=\"exported\"} 3"));
    assert!(metrics().contains("milepost_spans_total{result=\"dropped\"} 0"));
    session.signal("TERM");
    let (_, code, log) = session.ended();
    assert_eq!(code, Some(0), "{log}");
    let spans = collector.spans();
    let told: Vec<_> = spans
        .iter()
        .map(|span| {
            let said = attributes(&span.attributes);
            assert_eq!(
                (&*said["network.transport"], &*said["network.protocol.name"]),
                ("tcp", "http")
            );
            let route = said["milepost.route"].clone();
            (&*span.name, route, to_hex(&span.trace_id), to_hex(&span.parent_span_id))
        })
        .collect();
    let row = |name, route: &str, trace: &str, parent: &str| {
        (name, route.to_owned(), trace.to_owned(), parent.to_owned())
    };
    let other = "4bf92f3577b34da6a3ce929d0e0e4736";
    assert_eq!(
        told,
        [
            row("tools/call one", "/http", TRACE, PARENT),
            row("tools/call two", "/http", other, "00f067aa0ba902b7"),
            row("tools/call three", "/child", TRACE, PARENT),
        ]
    );
    let got = collector.got.lock().unwrap();
    assert!(got.iter().all(|asked| asked.path == "/own/path?x=1"));
    let sessions = got.iter().filter(|asked| String::from_utf8_lossy(&asked.body).contains(&id));
    assert_eq!(sessions.count(), 0);
}

/// How long some calls take, and how long the end takes.
fn timed(to: &str, variables: &[(&str, &str)]) -> (Duration, Duration, String) {
    let mut session = wrap(to, variables);
    answered(&mut session, 1, &call(1, "quick", ""));
    let began = Instant::now();
    for id in 2..22 {
        answered(&mut session, id, &call(id, "quick", ""));
    }
    let calls = began.elapsed();
    let ending = Instant::now();
    let (_, code, log) = session.finish();
    assert_eq!(code, Some(0), "{log}");
    (calls, ending.elapsed(), log)
}

/// Lost spans are reported, and calls are not affected.
#[test]
fn a_collector_that_is_not_well_harms_no_call() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let down = free.local_addr().unwrap().to_string();
    drop(free);
    // This collector accepts connections and never answers.
    let mute = Collector::start(|_, _| thread::sleep(Duration::from_secs(600)));
    let broken = Collector::start(|_, stream| fake::say(stream, "500 Oh no", "", "secret words"));
    let odd = Collector::start(|_, stream| drop(stream.write_all(b"secret words\r\n\r\n")));
    let moved = Collector::start(|_, stream| {
        fake::say(stream, "307 Moved", "location: http://127.0.0.1:1/secret\r\n", "");
    });
    let others = [&down, &mute.address, &broken.address, &odd.address, &moved.address];
    thread::scope(|scope| {
        for to in others {
            scope.spawn(move || {
                let variables =
                    [("OTEL_BSP_SCHEDULE_DELAY", "1"), ("OTEL_BSP_MAX_QUEUE_SIZE", "4")];
                let (calls, ending, log) = timed(to, &variables);
                assert!(calls < Duration::from_secs(60), "{calls:?}");
                assert!(ending < Duration::from_secs(30), "{ending:?}");
                assert!(log.contains("lost=21") && log.contains("exported=0"), "{log}");
                assert!(log.contains(to.as_str()) && !log.contains("secret"), "{log}");
                let warned = log.matches("takes no spans").count();
                assert!(warned <= 1, "{log}");
                let traces = log.lines().filter(|line| line.contains("trace_id=\"")).count();
                assert_eq!(traces, 21);
            });
        }
    });
}

#[test]
fn what_a_collector_cannot_take_now_it_gets_again() {
    let collector = Collector::start(|before, stream| match before {
        0 => fake::say(stream, "503 Busy", "retry-after: 0\r\n", ""),
        1 => fake::say(stream, "429 Too many", "", ""),
        _ => takes(stream),
    });
    let mut session = wrap(&collector.address, &[("OTEL_BSP_SCHEDULE_DELAY", "1")]);
    answered(&mut session, 1, &call(1, "quick", ""));
    until("it is sent three times", || collector.requests() == 3);
    let log = session.finish().2;
    assert!(!log.contains("lost="), "{log}");
    let got = collector.got.lock().unwrap();
    assert!(got.iter().all(|asked| asked.body == got[0].body));
}

#[test]
fn what_a_collector_rejects_is_counted() {
    crate::support::within_tries(|| {
        let collector = Collector::start(|_, stream| {
            let partial = ExportTracePartialSuccess {
                rejected_spans: 2,
                error_message: "secret words".to_owned(),
            };
            let answer =
                ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
            let _ = stream.write_all(&[head.as_bytes(), &answer].concat());
        });
        let mut session = wrap(&collector.address, &[]);
        for id in 1..4 {
            answered(&mut session, id, &call(id, "quick", ""));
        }
        let log = session.finish().2;
        assert!(log.contains("exported=1 lost=2") && !log.contains("secret"), "{log}");
    });
}

#[test]
fn variables_turn_it_off() {
    let collector = Collector::willing();
    for variable in [
        ("OTEL_SDK_DISABLED", "TRUE"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ] {
        let mut session = wrap(&collector.address, &[variable]);
        answered(&mut session, 1, &call(1, "quick", ""));
        let log = session.finish().2;
        assert!(!log.contains("WARN") && !log.contains("trace_id="), "{log}");
    }
    let mut session = wrap(&collector.address, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    answered(&mut session, 1, &call(1, "quick", ""));
    let log = session.finish().2;
    assert!(
        log.contains("OTEL_EXPORTER_OTLP_PROTOCOL is another protocol than http/protobuf"),
        "{log}"
    );
    assert_eq!(collector.requests(), 0);
}

#[test]
fn no_secret_is_in_a_span() {
    let collector = Collector::willing();
    let to = format!("http://{}", collector.address);
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*to), ("MILEPOST_LOG", "trace")];
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20canary-collector");
    let mut told = secrets::visit(
        &[variables[0], variables[1], headers, ("OTEL_BSP_SCHEDULE_DELAY", "50")],
        &[],
    );
    let got = collector.got.lock().unwrap();
    let bodies = got.iter().map(|asked| String::from_utf8_lossy(&asked.body)).collect();
    drop(got);
    told.texts.push(("spans", bodies));
    told.expect_no_secrets();
    let spans = collector.spans();
    assert!(spans.len() > 20, "{}", spans.len());
    assert!(spans.iter().any(|span| span.name == "tools/call work"));
}

fn read(
    variables: &[(&str, &str)],
) -> Result<Option<(TraceSettings, Vec<BadVariable>)>, BadVariable> {
    let of = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    settings::read(of)
}

#[track_caller]
fn check_address(variables: &[(&str, &str)], expected: Option<&str>) {
    let found = read(variables).unwrap();
    assert_eq!(found.as_ref().map(|(settings, _)| settings.collector.url.as_str()), expected);
}

#[test]
fn addresses_are_read_as_opentelemetry_says() {
    let (all, own) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    check_address(&[], None);
    check_address(&[(all, " ")], None);
    check_address(&[(all, "http://c:4318")], Some("http://c:4318/v1/traces"));
    check_address(&[(all, "https://c/otlp/?k=1")], Some("https://c/otlp/v1/traces?k=1"));
    check_address(&[(all, "http://c"), (own, "http://d/x")], Some("http://d/x"));
    check_address(&[(own, "http://d")], Some("http://d/"));
    check_address(&[("OTEL_TRACES_EXPORTER", "otlp")], Some("http://localhost:4318/v1/traces"));
    for bad in ["c:4318", "ftp://c", "http://", "http://user:secret@c", "nothing"] {
        let wrong = read(&[(all, bad)]).unwrap_err();
        assert_eq!(wrong.name, all);
        assert!(!wrong.to_string().contains("secret"), "{wrong}");
    }
}

#[test]
fn variables_that_are_not_understood_are_named_and_left_out() {
    let (settings, doubts) = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_TRACES_SAMPLER", "magic"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1000000000000"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
    ])
    .unwrap()
    .unwrap();
    let names: Vec<&str> = doubts.iter().map(|doubt| doubt.name).collect();
    let (zip, sampler) = ("OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_TRACES_SAMPLER");
    assert_eq!(names, ["OTEL_EXPORTER_OTLP_TIMEOUT", zip, sampler]);
    assert_eq!(settings.collector.timeout, Duration::from_secs(10));
    assert_eq!((settings.queue, settings.delay), (65_536, Duration::from_millis(1)));
}

/// Whether a call becomes a span under these variables, with and without a client that names a trace.
#[track_caller]
fn check_sampler(name: &str, argument: &str, expected: [bool; 3]) {
    let collector = Collector::willing();
    let mut session = wrap(
        &collector.address,
        &[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", argument)],
    );
    let of = |flags| format!(r#""traceparent":"00-{TRACE}-{PARENT}-{flags}""#);
    for (id, meta) in [(1, of("01")), (2, of("00")), (3, String::new())] {
        answered(&mut session, id, &call(id, "quick", &meta));
    }
    session.finish();
    let found = [1, 2, 3].map(|id: u64| {
        let spans = collector.spans();
        spans
            .iter()
            .any(|span| attributes(&span.attributes)["jsonrpc.request.id"] == id.to_string())
    });
    assert_eq!(found, expected, "{name} {argument}");
}

#[test]
fn samplers_are_those_of_opentelemetry() {
    crate::support::within_tries(|| {
        check_sampler("parentbased_always_off", "", [true, false, false]);
    });
    crate::support::within_tries(|| check_sampler("always_on", "", [true; 3]));
    crate::support::within_tries(|| {
        check_sampler("parentbased_traceidratio", "0", [true, false, false]);
    });
    crate::support::within_tries(|| check_sampler("traceidratio", "0", [false; 3]));
    // A name that is not a sampler is ignored.
    crate::support::within_tries(|| check_sampler("xray", "", [true, false, true]));
}
