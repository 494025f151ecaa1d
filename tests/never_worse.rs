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

/// How often a cell that is worse is looked at again.
const LOOKS: usize = 4;

/// Sessions at once. They mostly sleep.
const AT_ONCE: usize = 8;

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
    over: Over,
    /// The name of the example and its options.
    server: &'static str,
    calls: &'static [&'static str],
    /// More than any call takes, in seconds.
    timeout: &'static str,
}

const fn row(
    name: &'static str,
    over: Over,
    server: &'static str,
    calls: &'static [&'static str],
    timeout: &'static str,
) -> Row {
    Row { name, over, server, calls, timeout }
}

const KUZUMEM_CALLS: &[&str] = &[
    "pagerank",
    "get-component-dependencies",
    r#"get-component-dependencies={"componentId":"no-such-component"}"#,
];

const ROWS: [Row; 45] = [
    // First what takes longest.
    row(
        "SwissArmyHammer s2, repeats itself",
        Stdio,
        "swissarmyhammer --generation s2 --pace 200ms --keep-alive 1100ms",
        &["review"],
        "12",
    ),
    row("KuzuMem k3s", Stdio, "kuzumem --generation k3s --pace 150ms", KUZUMEM_CALLS, "6"),
    row("KuzuMem k1", Stdio, "kuzumem --generation k1 --pace 150ms", KUZUMEM_CALLS, "6"),
    row("KuzuMem k4", Stdio, "kuzumem --generation k4 --pace 150ms", KUZUMEM_CALLS, "6"),
    row("KuzuMem k6", Stdio, "kuzumem --generation k6 --pace 150ms", KUZUMEM_CALLS, "6"),
    row("KuzuMem head", Stdio, "kuzumem --generation head --pace 150ms", &["pagerank"], "6"),
    row(
        "SwissArmyHammer s0",
        Stdio,
        "swissarmyhammer --generation s0 --pace 200ms",
        &["shell", "flow", "web_search", r#"shell={"command":"false"}"#],
        "6",
    ),
    row(
        "SwissArmyHammer s2",
        Stdio,
        "swissarmyhammer --generation s2 --pace 200ms",
        &["code_context"],
        "6",
    ),
    row("Plexus", Stdio, "plexus --pace 200ms", &["claudecode.chat", "orcha.run_task"], "6"),
    row(
        "KuzuMem head, stderr as progress",
        Flagged(&["--dialect", "defaults,stderr"]),
        "kuzumem --generation head --pace 150ms",
        &["pagerank"],
        "6",
    ),
    row(
        "cargo and tqdm, stderr as progress",
        Flagged(&["--dialect", "defaults,stderr"]),
        "builder --packages 2",
        &["train", "build"],
        "12",
    ),
    row(
        "Plexus, logs as progress",
        Flagged(&["--dialect", "defaults,log"]),
        "plexus --pace 200ms",
        &["claudecode.chat", "orcha.run_task"],
        "6",
    ),
    row(
        "silent, estimated",
        Flagged(&["--estimate", "--heartbeat-after", "300ms", "--heartbeat-every", "300ms"]),
        "silent --pace 1s",
        &["sleep", "sleep", "sleep", "sleep"],
        "6",
    ),
    row(
        "mcp-devtools, 5,000 lines",
        Stdio,
        "mcp_devtools --pace 200ms --token-from meta",
        &["project_actions"],
        "6",
    ),
    row(
        "mcp-devtools, late",
        Stdio,
        "mcp_devtools --pace 200ms --lines 100 --late 3 --token-from meta",
        &["project_actions"],
        "6",
    ),
    row(
        "mcp-devtools, as it is",
        Stdio,
        "mcp_devtools --pace 200ms --lines 100",
        &["project_actions"],
        "6",
    ),
    row(
        "mcp-devtools, given its token",
        Flagged(&["--ask-token-in-arguments"]),
        "mcp_devtools --pace 200ms --lines 100",
        &["project_actions"],
        "6",
    ),
    row("Scout", Stdio, "scout --pace 150ms", &["run_materialization"], "6"),
    row("silent", Stdio, "silent", &[r#"sleep={"seconds":3}"#, r#"echo={"text":"at once"}"#], "6"),
    row(
        "100 % with the answer",
        Stdio,
        "silent --pace 200ms",
        &["burst", "burst", "burst", "burst", "burst"],
        "6",
    ),
    row(
        "silent, JSON, HTTP",
        Http,
        "silent --json",
        &[r#"sleep={"seconds":7}"#, r#"echo={"text":"at once"}"#],
        "12",
    ),
    row("KuzuMem k5, HTTP", Http, "kuzumem --generation k5 --pace 100ms", KUZUMEM_CALLS, "6"),
    row(
        "Plexus p0, HTTP",
        Http,
        "plexus --variant p0 --pace 200ms",
        &["claudecode.chat", "orcha.run_task"],
        "6",
    ),
    row(
        "Plexus p1, HTTP",
        Http,
        "plexus --variant p1 --pace 200ms",
        &["claudecode.chat", "orcha.run_task"],
        "6",
    ),
    row(
        "Plexus p1, invents tokens, HTTP",
        Http,
        "plexus --variant p1 --pace 200ms --invented-token",
        &["claudecode.chat"],
        "6",
    ),
    row(
        "SwissArmyHammer s0, HTTP",
        Http,
        "swissarmyhammer --generation s0 --pace 150ms",
        &["shell", "flow"],
        "6",
    ),
    row(
        "SwissArmyHammer s1, HTTP",
        Http,
        "swissarmyhammer --generation s1 --pace 150ms",
        &["shell"],
        "6",
    ),
    row(
        "SwissArmyHammer s2, HTTP",
        Http,
        "swissarmyhammer --generation s2 --pace 150ms",
        &["code_context"],
        "6",
    ),
    row(
        "mcp-devtools, 5,000 lines, HTTP",
        Http,
        "mcp_devtools --pace 200ms --token-from meta",
        &["project_actions"],
        "6",
    ),
    row(
        "mcp-devtools, as it is, HTTP",
        Http,
        "mcp_devtools --pace 200ms --lines 100",
        &["project_actions"],
        "6",
    ),
    row("Scout, HTTP", Http, "scout --pace 150ms", &["run_materialization"], "6"),
    row(
        "100 % with the answer, HTTP",
        Http,
        "silent --pace 200ms",
        &["burst", "burst", "burst", "burst", "burst"],
        "6",
    ),
    // Another transport towards the client than the server's.
    row(
        "SwissArmyHammer s2, stdio to HTTP",
        Served,
        "swissarmyhammer --generation s2 --pace 200ms",
        &["code_context"],
        "6",
    ),
    row(
        "Plexus, stdio to HTTP",
        Served,
        "plexus --pace 200ms",
        &["claudecode.chat", "orcha.run_task"],
        "6",
    ),
    row(
        "KuzuMem k5, HTTP to stdio",
        Called,
        "kuzumem --generation k5 --pace 100ms",
        KUZUMEM_CALLS,
        "6",
    ),
    row(
        "SwissArmyHammer s2, HTTP to stdio",
        Called,
        "swissarmyhammer --generation s2 --pace 150ms",
        &["code_context"],
        "6",
    ),
    // Habits of servers that public bug reports tell of.
    row("null members beside a result", Stdio, "odd", &["nulls"], "3"),
    row("half a surrogate pair", Stdio, "odd --pace 100ms", &["surrogates"], "3"),
    row("two messages on one line", Stdio, "odd", &["glued"], "3"),
    row("Latin-1", Stdio, "odd --pace 100ms", &["latin1"], "3"),
    row("errors in answer to notifications", Stdio, "odd --pace 100ms --grumble", &["steps"], "3"),
    row(
        "wrong totals, a burst, a job's name as token",
        Stdio,
        "odd --pace 150ms",
        &["totals", "burst", "start", "wait"],
        "4",
    ),
    row(
        "null members, wrong totals, a job's name as token, HTTP",
        Http,
        "odd --pace 150ms",
        &["nulls", "totals", "start", "wait"],
        "3",
    ),
    row("202, answers on the GET stream, HTTP", Http, "odd --answers get", &["steps"], "4"),
    row("202 with events, HTTP", Http, "odd --answers accepted", &["steps"], "4"),
];

/// Habits of clients that public bug reports tell of, and that no SDK has.
const HABITS: [(&str, Row); 7] = [
    (
        "raw-same-ids",
        row("one id for all calls, HTTP", Http, "odd", &["steps", "wait", "totals"], "6"),
    ),
    (
        "raw-same-ids",
        row(
            "one id for all calls, stdio to HTTP",
            Served,
            "odd",
            &["steps", "wait", "totals"],
            "6",
        ),
    ),
    ("raw-fractions", row("ids like 1.5", Stdio, "odd", &["steps", "totals"], "6")),
    ("raw-fractions", row("ids like 1.5, HTTP", Http, "odd", &["steps", "totals"], "6")),
    ("raw-fractions", row("ids like 1.5, stdio to HTTP", Served, "odd", &["steps", "totals"], "6")),
    ("raw-leaves", row("closes after a notification, HTTP", Http, "odd", &["heard"], "6")),
    (
        "raw-leaves",
        row("closes after a notification, stdio to HTTP", Served, "odd", &["heard"], "6"),
    ),
];

impl Row {
    /// The name of the example, and its options.
    fn words(&self) -> (&'static str, Vec<&'static str>) {
        let mut words = self.server.split(' ');
        (words.next().unwrap_or_default(), words.collect())
    }

    /// The server over stdio.
    fn command(&self) -> Vec<String> {
        let (server, options) = self.words();
        std::iter::once(example(server))
            .chain(options.iter().map(|&word| word.to_owned()))
            .collect()
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
                let server = {
                    let (server, options) = row.words();
                    Server::start(server, &options)
                };
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
        // A call that fails at once makes a short session.
        let is_answered = |call: &Call| call.outcome.starts_with("result");
        let is_comparable =
            without.calls.iter().all(is_answered) || !with.calls.iter().all(is_answered);
        if is_comparable && with.report.took > limit {
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
    let sdks = ROWS.iter().flat_map(|row| CLIENTS.map(|client| (row, client)));
    let habits = HABITS.iter().map(|(client, row)| (row, *client));
    let jobs: VecDeque<_> = sdks.chain(habits).enumerate().collect();
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
        // The machine may have been busy: what counts is another look, alone.
        for _ in 0..LOOKS {
            if cell.complaints().is_empty() {
                break;
            }
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
        && (before - came(&fresh)).abs() <= 2.max(before / 8)
}
