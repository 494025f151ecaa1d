//! Real clients by legacy servers, with and without Milepost: no cell may be worse with it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs, thread};

use serde_json::Value;

use crate::support::sdk::{CLIENTS, Proxy, Report, client, stdio_route, visit, wrapped};
use crate::support::server::Server;
use crate::support::{MILEPOST, example, home};

/// An answer overtakes what comes so shortly before it: that alone may be missing with Milepost.
const OVERTAKEN_MS: u64 = 30;

/// What a call, and a whole session, may take longer with Milepost, beside a tenth.
const CALL_SLACK_MS: u64 = 60;
const SESSION_SLACK: Duration = Duration::from_secs(1);

/// Sessions at once. They mostly sleep.
const AT_ONCE: usize = 5;

/// How a server is reached without Milepost, and then with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// Stdio, and `wrap` before it.
    Stdio,
    /// The same, with these flags.
    Flagged(&'static [&'static str]),
    /// Streamable HTTP, and `serve` before it.
    Http,
    /// Stdio, and then by a client over HTTP, of `serve`, which starts it.
    Served,
    /// Streamable HTTP, and then by a client over stdio, of `wrap` with its address.
    Called,
}
use Over::{Called, Flagged, Http, Served, Stdio};

/// A server and what is asked of it. The times between two steps are those of real tools, cut so
/// that a call takes seconds and not minutes.
struct Row {
    name: &'static str,
    server: &'static str,
    over: Over,
    options: &'static [&'static str],
    calls: &'static [&'static str],
    /// More than any call takes, in seconds.
    timeout: &'static str,
}

const KUZUMEM_CALLS: &[&str] = &[
    "pagerank",
    "get-component-dependencies",
    r#"get-component-dependencies={"componentId":"no-such-component"}"#,
];

const ROWS: [Row; 36] = [
    // First what takes longest.
    Row {
        name: "SwissArmyHammer s2, repeats itself",
        server: "swissarmyhammer",
        over: Stdio,
        options: &["--generation", "s2", "--pace", "200ms", "--keep-alive", "1100ms"],
        calls: &["review"],
        timeout: "12",
    },
    Row {
        name: "KuzuMem k3s",
        server: "kuzumem",
        over: Stdio,
        options: &["--generation", "k3s", "--pace", "150ms"],
        calls: KUZUMEM_CALLS,
        timeout: "6",
    },
    Row {
        name: "KuzuMem k1",
        server: "kuzumem",
        over: Stdio,
        options: &["--generation", "k1", "--pace", "150ms"],
        calls: KUZUMEM_CALLS,
        timeout: "6",
    },
    Row {
        name: "KuzuMem k4",
        server: "kuzumem",
        over: Stdio,
        options: &["--generation", "k4", "--pace", "150ms"],
        calls: KUZUMEM_CALLS,
        timeout: "6",
    },
    Row {
        name: "KuzuMem k6",
        server: "kuzumem",
        over: Stdio,
        options: &["--generation", "k6", "--pace", "150ms"],
        calls: KUZUMEM_CALLS,
        timeout: "6",
    },
    Row {
        name: "KuzuMem head",
        server: "kuzumem",
        over: Stdio,
        options: &["--generation", "head", "--pace", "150ms"],
        calls: &["pagerank"],
        timeout: "6",
    },
    Row {
        name: "SwissArmyHammer s0",
        server: "swissarmyhammer",
        over: Stdio,
        options: &["--generation", "s0", "--pace", "200ms"],
        calls: &["shell", "flow", "web_search", r#"shell={"command":"false"}"#],
        timeout: "6",
    },
    Row {
        name: "SwissArmyHammer s2",
        server: "swissarmyhammer",
        over: Stdio,
        options: &["--generation", "s2", "--pace", "200ms"],
        calls: &["code_context"],
        timeout: "6",
    },
    Row {
        name: "Plexus",
        server: "plexus",
        over: Stdio,
        options: &["--pace", "200ms"],
        calls: &["claudecode.chat", "orcha.run_task"],
        timeout: "6",
    },
    Row {
        name: "KuzuMem head, stderr as progress",
        server: "kuzumem",
        over: Flagged(&["--dialect", "defaults,stderr"]),
        options: &["--generation", "head", "--pace", "150ms"],
        calls: &["pagerank"],
        timeout: "6",
    },
    Row {
        name: "cargo and tqdm, stderr as progress",
        server: "builder",
        over: Flagged(&["--dialect", "defaults,stderr"]),
        options: &["--packages", "2"],
        calls: &["train", "build"],
        timeout: "12",
    },
    Row {
        name: "Plexus, logs as progress",
        server: "plexus",
        over: Flagged(&["--dialect", "defaults,log"]),
        options: &["--pace", "200ms"],
        calls: &["claudecode.chat", "orcha.run_task"],
        timeout: "6",
    },
    Row {
        name: "silent, estimated",
        server: "silent",
        over: Flagged(&["--estimate", "--heartbeat-after", "300ms", "--heartbeat-every", "300ms"]),
        options: &["--pace", "1s"],
        calls: &["sleep", "sleep", "sleep", "sleep"],
        timeout: "6",
    },
    Row {
        name: "mcp-devtools, 5,000 lines",
        server: "mcp_devtools",
        over: Stdio,
        options: &["--pace", "200ms", "--token-from", "meta"],
        calls: &["project_actions"],
        timeout: "6",
    },
    Row {
        name: "mcp-devtools, late",
        server: "mcp_devtools",
        over: Stdio,
        options: &["--pace", "200ms", "--lines", "100", "--late", "3", "--token-from", "meta"],
        calls: &["project_actions"],
        timeout: "6",
    },
    Row {
        name: "mcp-devtools, as it is",
        server: "mcp_devtools",
        over: Stdio,
        options: &["--pace", "200ms", "--lines", "100"],
        calls: &["project_actions"],
        timeout: "6",
    },
    Row {
        name: "mcp-devtools, given its token",
        server: "mcp_devtools",
        over: Flagged(&["--ask-token-in-arguments"]),
        options: &["--pace", "200ms", "--lines", "100"],
        calls: &["project_actions"],
        timeout: "6",
    },
    Row {
        name: "Scout",
        server: "scout",
        over: Stdio,
        options: &["--pace", "150ms"],
        calls: &["run_materialization"],
        timeout: "6",
    },
    Row {
        name: "silent",
        server: "silent",
        over: Stdio,
        options: &[],
        calls: &[r#"sleep={"seconds":3}"#, r#"echo={"text":"at once"}"#],
        timeout: "6",
    },
    Row {
        name: "100 % with the answer",
        server: "silent",
        over: Stdio,
        options: &["--pace", "200ms"],
        calls: &["burst", "burst", "burst", "burst", "burst"],
        timeout: "6",
    },
    Row {
        name: "silent, JSON, HTTP",
        server: "silent",
        over: Http,
        options: &["--json"],
        calls: &[r#"sleep={"seconds":7}"#, r#"echo={"text":"at once"}"#],
        timeout: "12",
    },
    Row {
        name: "KuzuMem k5, HTTP",
        server: "kuzumem",
        over: Http,
        options: &["--generation", "k5", "--pace", "100ms"],
        calls: KUZUMEM_CALLS,
        timeout: "6",
    },
    Row {
        name: "Plexus p0, HTTP",
        server: "plexus",
        over: Http,
        options: &["--variant", "p0", "--pace", "200ms"],
        calls: &["claudecode.chat", "orcha.run_task"],
        timeout: "6",
    },
    Row {
        name: "Plexus p1, HTTP",
        server: "plexus",
        over: Http,
        options: &["--variant", "p1", "--pace", "200ms"],
        calls: &["claudecode.chat", "orcha.run_task"],
        timeout: "6",
    },
    Row {
        name: "Plexus p1, invents tokens, HTTP",
        server: "plexus",
        over: Http,
        options: &["--variant", "p1", "--pace", "200ms", "--invented-token"],
        calls: &["claudecode.chat"],
        timeout: "6",
    },
    Row {
        name: "SwissArmyHammer s0, HTTP",
        server: "swissarmyhammer",
        over: Http,
        options: &["--generation", "s0", "--pace", "150ms"],
        calls: &["shell", "flow"],
        timeout: "6",
    },
    Row {
        name: "SwissArmyHammer s1, HTTP",
        server: "swissarmyhammer",
        over: Http,
        options: &["--generation", "s1", "--pace", "150ms"],
        calls: &["shell"],
        timeout: "6",
    },
    Row {
        name: "SwissArmyHammer s2, HTTP",
        server: "swissarmyhammer",
        over: Http,
        options: &["--generation", "s2", "--pace", "150ms"],
        calls: &["code_context"],
        timeout: "6",
    },
    Row {
        name: "mcp-devtools, 5,000 lines, HTTP",
        server: "mcp_devtools",
        over: Http,
        options: &["--pace", "200ms", "--token-from", "meta"],
        calls: &["project_actions"],
        timeout: "6",
    },
    Row {
        name: "mcp-devtools, as it is, HTTP",
        server: "mcp_devtools",
        over: Http,
        options: &["--pace", "200ms", "--lines", "100"],
        calls: &["project_actions"],
        timeout: "6",
    },
    Row {
        name: "Scout, HTTP",
        server: "scout",
        over: Http,
        options: &["--pace", "150ms"],
        calls: &["run_materialization"],
        timeout: "6",
    },
    Row {
        name: "100 % with the answer, HTTP",
        server: "silent",
        over: Http,
        options: &["--pace", "200ms"],
        calls: &["burst", "burst", "burst", "burst", "burst"],
        timeout: "6",
    },
    // Another transport towards the client than the server's.
    Row {
        name: "SwissArmyHammer s2, stdio to HTTP",
        server: "swissarmyhammer",
        over: Served,
        options: &["--generation", "s2", "--pace", "200ms"],
        calls: &["code_context"],
        timeout: "6",
    },
    Row {
        name: "Plexus, stdio to HTTP",
        server: "plexus",
        over: Served,
        options: &["--pace", "200ms"],
        calls: &["claudecode.chat", "orcha.run_task"],
        timeout: "6",
    },
    Row {
        name: "KuzuMem k5, HTTP to stdio",
        server: "kuzumem",
        over: Called,
        options: &["--generation", "k5", "--pace", "100ms"],
        calls: KUZUMEM_CALLS,
        timeout: "6",
    },
    Row {
        name: "SwissArmyHammer s2, HTTP to stdio",
        server: "swissarmyhammer",
        over: Called,
        options: &["--generation", "s2", "--pace", "150ms"],
        calls: &["code_context"],
        timeout: "6",
    },
];

impl Row {
    /// The server over stdio.
    fn command(&self) -> Vec<String> {
        let options = self.options.iter().map(|&word| word.to_owned());
        std::iter::once(example(self.server)).chain(options).collect()
    }

    /// What a client sees at the proxy, or else at `url`.
    fn visit(name: &str, options: &[&str], proxy: Option<Proxy>, url: String) -> Report {
        let url = proxy.as_ref().map_or(url, |proxy| proxy.url("/mcp"));
        let mut report = visit(name, options, &["--url", &url], &[]);
        if let Some(proxy) = proxy {
            report.stderr += &proxy.log();
        }
        report
    }
}

/// What a client saw of one call.
#[derive(Debug, PartialEq)]
struct Call {
    outcome: &'static str,
    result: Value,
    /// Compliant updates that came before the answer, and those of them that the answer cannot overtake.
    came: usize,
    due: usize,
    ms: Option<u64>,
}

/// What a client saw of one server.
struct Side {
    calls: Vec<Call>,
    errors: u64,
    report: Report,
}

impl Side {
    fn measure(row: &Row, name: &str, with: bool) -> Self {
        let deadline = (row.timeout.parse::<u64>().unwrap() + 2).to_string();
        let mut options = vec!["--timeout", row.timeout, "--deadline", &deadline];
        options.extend(["--linger", "300"]);
        row.calls.iter().for_each(|call| options.extend(["--call", call]));
        let report = match row.over {
            Stdio if with => client(name, &options, &wrapped(&[], &row.command())),
            Flagged(flags) if with => client(name, &options, &wrapped(flags, &row.command())),
            Stdio | Flagged(_) | Served if !with => client(name, &options, &row.command()),
            Stdio | Flagged(_) | Served => {
                let proxy = Proxy::start(&stdio_route("/mcp", &row.command(), ""));
                Row::visit(name, &options, Some(proxy), String::new())
            }
            Http | Called => {
                let server = Server::start(row.server, row.options);
                let url = server.url().to_owned();
                if with && row.over == Called {
                    let wrap = [MILEPOST, "wrap", "--state-dir", "off", &url].map(str::to_owned);
                    client(name, &options, &wrap)
                } else {
                    let proxy = with.then(|| Proxy::to(&url, ""));
                    Row::visit(name, &options, proxy, url)
                }
            }
        };
        // Calls that were not even made, as there was no connection, count as well.
        let calls = (0..row.calls.len()).map(|at| Call::read(report.calls().get(at))).collect();
        Self { calls, errors: report.errors(), report }
    }

    fn came(&self) -> usize {
        self.calls.iter().map(|call| call.came).sum()
    }

    fn answered(&self) -> usize {
        self.calls.iter().filter(|call| call.outcome.starts_with("result")).count()
    }
}

impl Call {
    fn read(call: Option<&Value>) -> Self {
        let call = call.unwrap_or(&Value::Null);
        let outcome = match (call["outcome"].as_str(), call["is_error"].as_bool()) {
            (Some("result"), Some(true)) => "result that is an error",
            (Some("result"), _) => "result",
            (Some("error"), _) => "error",
            (Some(_), _) => "timeout",
            (None, _) => "no connection",
        };
        let progress = call["progress"].as_array().map(Vec::as_slice).unwrap_or_default();
        let answered = call["ms"].as_u64().unwrap_or(u64::MAX);
        // Compliant is what rises and comes before the answer: the SDK has looked at all else.
        let mut figure = f64::NEG_INFINITY;
        let (mut came, mut due) = (0, 0);
        for update in progress {
            let (next, at) = (update[0].as_f64(), update[3].as_u64().unwrap_or(0));
            if at <= answered && next.is_some_and(|next| next > figure) {
                figure = next.unwrap_or(figure);
                came += 1;
                due += usize::from(at.saturating_add(OVERTAKEN_MS) <= answered);
            }
        }
        Self { outcome, result: call["result"].clone(), came, due, ms: call["ms"].as_u64() }
    }
}

/// One client and one server.
struct Cell<'a> {
    row: &'a Row,
    client: &'static str,
    without: Side,
    with: Side,
}

impl<'a> Cell<'a> {
    fn measure(row: &'a Row, client: &'static str) -> Self {
        let without = Side::measure(row, client, false);
        let with = Side::measure(row, client, true);
        Self { row, client, without, with }
    }

    /// What is worse with Milepost.
    fn complaints(&self) -> Vec<String> {
        let Self { without, with, .. } = self;
        let mut complaints = Vec::new();
        if with.errors > without.errors {
            complaints.push(format!("errors {} -> {}", without.errors, with.errors));
        }
        // Where a stream is cut off or a request is refused.
        let [before, after] = [without, with].map(|side| &side.report.json["http_error_count"]);
        // On stdio there are none: not even the 404 that tells a client to fall back.
        if self.row.over == Http && after.as_u64() > before.as_u64() {
            let what = &with.report.json["http_errors"];
            complaints.push(format!("HTTP errors {before} -> {after}: {what}"));
        }
        let limit = without.report.took + without.report.took / 10 + SESSION_SLACK;
        if with.report.took > limit {
            complaints.push(format!("session {:?} -> {:?}", without.report.took, with.report.took));
        }
        let calls = self.row.calls.iter().zip(without.calls.iter().zip(&with.calls));
        for (call, (before, after)) in calls {
            let mut complain = |what: &str, before: &dyn Debug, after: &dyn Debug| {
                complaints.push(format!("{call}: {what} {before:?} -> {after:?}"));
            };
            let answered = before.outcome.starts_with("result");
            if answered && after.outcome != before.outcome {
                complain("outcome", &before.outcome, &after.outcome);
            }
            // An answer of this shape is not repaired, so it is the same.
            let proper = before.result["content"].get(0).is_some();
            if proper && after.result != before.result {
                complain("result", &before.result, &after.result);
            }
            if after.came < before.due {
                complain("came", &before.due, &after.came);
            }
            let time = before.ms.zip(after.ms).filter(|_| answered);
            if let Some((before, after)) = time
                && after > before + before / 10 + CALL_SLACK_MS
            {
                complain("ms", &before, &after);
            }
        }
        complaints
    }
}

#[test]
fn no_cell_of_clients_by_legacy_servers_is_worse_with_milepost() {
    let _quiet = crate::QUIET.write().unwrap_or_else(PoisonError::into_inner);
    let jobs: VecDeque<_> =
        ROWS.iter().flat_map(|row| CLIENTS.map(|client| (row, client))).enumerate().collect();
    let (jobs, cells) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((at, (row, client))) = jobs.lock().unwrap().pop_front() else { break };
                    let cell = Cell::measure(row, client);
                    cells.lock().unwrap().push((at, cell));
                }
            });
        }
    });
    let mut cells = cells.into_inner().unwrap();
    cells.sort_by_key(|(at, _)| *at);
    let mut worse = Vec::new();
    for (_, cell) in &mut cells {
        // The machine may have been busy: what counts is a second look, alone.
        if !cell.complaints().is_empty() {
            println!("again: {} {}: {:?}", cell.row.name, cell.client, cell.complaints());
            *cell = Cell::measure(cell.row, cell.client);
        }
        for complaint in cell.complaints() {
            let stderr = &cell.with.report.stderr;
            println!("{} {}: {complaint}\n{stderr}", cell.row.name, cell.client);
            worse.push(format!("{} by {}: {complaint}", cell.client, cell.row.name));
        }
    }
    let cells: Vec<_> = cells.into_iter().map(|(_, cell)| cell).collect();
    cells.iter().for_each(Cell::print);
    document(&cells);
    assert!(worse.is_empty(), "worse with Milepost:\n{}", worse.join("\n"));
}

impl Cell<'_> {
    /// All there is to know, for whoever runs the test.
    #[expect(clippy::print_stdout, reason = "shown if the test fails, or when asked for")]
    fn print(&self) {
        let Cell { row, client, without, with } = self;
        let ms = |side: &Side| side.calls.iter().filter_map(|call| call.ms).sum::<u64>();
        println!(
            "{:34} {client:5} came {:4} -> {:4}  errors {:3} -> {}  \
             answered {} -> {}  ms {:5} -> {:5}  session {:5} -> {:5}{}",
            row.name,
            without.came(),
            with.came(),
            without.errors,
            with.errors,
            without.answered(),
            with.answered(),
            ms(without),
            ms(with),
            without.report.took.as_millis(),
            with.report.took.as_millis(),
            if with.came() < without.came() { "  fewer came" } else { "" },
        );
    }

    /// Its line of the document: server, client, and without and with each the updates that came, the
    /// errors and the answers. How many errors there are depends on how bytes happen to meet.
    fn line(&self) -> String {
        let Cell { row, client, without, with } = self;
        let errors = |side: &Side| if side.errors == 0 { "0" } else { "> 0" };
        let answers = |side: &Side| format!("{} of {}", side.answered(), row.calls.len());
        format!(
            "| {} | {client} | {} | {} | {} | {} | {} | {} |",
            row.name,
            without.came(),
            with.came(),
            errors(without),
            errors(with),
            answers(without),
            answers(with)
        )
    }
}

/// What is written above the table.
const PREFACE: &str = include_str!("never_worse.md");

/// Compares the table with the one in the documentation, or renews that.
fn document(cells: &[Cell<'_>]) {
    let path = home().join("docs/never-worse.md");
    let lines: Vec<_> = cells.iter().map(Cell::line).collect();
    let fresh = format!("{PREFACE}{}\n", lines.join("\n"));
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, fresh).unwrap();
        return;
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let stored = stored.strip_prefix(PREFACE).unwrap_or_default();
    assert_eq!(
        stored.lines().count(),
        lines.len(),
        "docs/never-worse.md: run with UPDATE_EXPECT=1"
    );
    for (stored, fresh) in stored.lines().zip(&lines) {
        assert!(agree(stored, fresh), "docs/never-worse.md: {stored}, but now {fresh}");
    }
}

/// Whether two lines say the same of Milepost's side. One update more or less is a matter of when the
/// answer comes, and of many it is some; what happens without Milepost often is one of luck.
fn agree(stored: &str, fresh: &str) -> bool {
    let columns =
        |line: &str| line.split('|').map(|word| word.trim().to_owned()).collect::<Vec<_>>();
    let (stored, fresh) = (columns(stored), columns(fresh));
    let came = |columns: &[String]| columns[4].parse::<i64>().unwrap_or(i64::MIN / 2);
    let same = |column: usize| stored[column] == fresh[column];
    let before = came(&stored);
    stored.len() == fresh.len()
        && [1, 2, 6, 8].into_iter().all(same)
        && (before - came(&fresh)).abs() <= 2.max(before / 10)
}
