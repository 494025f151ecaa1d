//! `milepost doctor`: its report on each example server, and the suggested cure.

mod findings;
mod odd_servers;
pub(crate) mod servers_without_example;
mod unreachable;

use std::process::{Output, Stdio};
use std::{env, thread};

use crate::support::sections::{rewrite, section};
use crate::support::server::Server;
use crate::support::{example, milepost};

/// A busy machine may separate or join messages that a server has written together, so the test is repeated up to this
/// number of times.
const TRIES: usize = 6;

fn doctor(args: &[&str]) -> Output {
    milepost().arg("doctor").args(args).stdin(Stdio::null()).output().unwrap()
}

/// The begin of the line about progress that comes too close to the answer: whether there is any depends on
/// the machine.
const WITHHELD: &str = "  withheld so that the answer is not mistaken";

/// Returns the report without the parts that differ between runs: times, ports, generated ids, and how much of fast
/// progress is shown.
fn normal(report: &str, places: &[(&str, &str)]) -> String {
    let mut text = report.to_owned();
    for (place, name) in places {
        text = text.replace(place, name);
    }
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with(WITHHELD)) {
        let line = timeless(line);
        let figures = line.strip_prefix("  usable progress").map(|figures| {
            let some = |figure: &str| if figure == "0" { "none" } else { "some" };
            let words: Vec<&str> = figures.split_whitespace().map(some).collect();
            format!("  usable progress  {}", words.join(" "))
        });
        out += &figures.unwrap_or(line);
        out.push('\n');
    }
    out
}

/// A line with `T` for each time, and `U` for each UUID.
fn timeless(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let mut out: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).map(|word| word.trim_end_matches([',', ';', '\n']));
        let unit = |word: &str| ["ms", "s"].contains(&word.trim_end_matches([',', ';']));
        if is_number(word) && matches!(next, Some("ms" | "s")) {
            out.push("T".to_owned());
        } else if !(unit(word) && out.last().is_some_and(|last| last == "T")) {
            out.push((*word).to_owned());
        } else if let Some(sign) = word.chars().last().filter(|sign| [',', ';'].contains(sign)) {
            let last = out.pop().unwrap();
            out.push(format!("{last}{sign}"));
        }
    }
    let line = out.join(" ");
    // Where a line is cut after this depends on the process and the machine.
    let line =
        line.split_once(r#""pid":"#).map_or_else(|| line.clone(), |(head, _)| format!("{head}…"));
    // If two calls are open, reports that name neither may belong to either.
    let line = match line.split_once("; 0 of ") {
        Some((head, _)) => format!("{head}; 0 of N reports can be used"),
        None => line,
    };
    // The widths of the columns of times depend on the times.
    match line.strip_prefix("  longest silence ") {
        Some(_) => "  longest silence".to_owned(),
        None => numbers(&uuids(&line)),
    }
}

/// Long numbers are of the machine: times, processes.
fn numbers(line: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    for sign in line.chars().chain(['\0']) {
        if sign.is_ascii_digit() {
            digits.push(sign);
            continue;
        }
        out += if digits.len() < 5 { &digits } else { "N" };
        digits.clear();
        out.push(sign);
    }
    out.trim_end_matches('\0').to_owned()
}

/// Returns a line without generated ids: UUIDs and ULIDs.
fn uuids(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(is_part) {
        let end = rest[at..].find(|c| !is_part(c)).map_or(rest.len(), |length| at + length);
        let part = &rest[at..end];
        let is_uuid = part.len() == 36 && part.matches('-').count() == 4;
        let is_ulid = part.len() == 26 && !part.contains(|c: char| c.is_ascii_lowercase());
        out += &rest[..at];
        out += if is_uuid || is_ulid { "U" } else { part };
        rest = &rest[end..];
    }
    out + rest
}

/// Compares reports with a section of `tests/data/doctor/odd.txt`, if its name begins with `odd-`, or of
/// `tests/data/doctor/examples.txt`.
fn golden(name: &str, mut report: impl FnMut() -> String) {
    let (file, kept_as) = match name.strip_prefix("odd-") {
        Some(odd) => ("tests/data/doctor/odd.txt", odd),
        None => ("tests/data/doctor/examples.txt", name),
    };
    if env::var_os("UPDATE_EXPECT").is_some() {
        rewrite(file, kept_as, &report());
        return;
    }
    let kept = section(file, kept_as);
    let mut seen = String::new();
    for _ in 0..TRIES {
        seen = report();
        if seen == kept {
            return;
        }
        eprintln!("{name} is looked at again:\n{seen}");
    }
    panic!("{file}: {kept_as}: UPDATE_EXPECT=1 writes it anew\n--- kept\n{kept}\n--- seen\n{seen}");
}

/// One server as a child.
fn stdio(name: &str, server: &[&str], args: &[&str]) {
    let program = example(server[0]);
    golden(name, || {
        let mut all = args.to_vec();
        all.extend(["--through", "--", &program]);
        all.extend(&server[1..]);
        seen(&all, &[(&program, server[0])])
    });
}

/// One server over HTTP. One that has seen a client may treat the next one otherwise, so it is new each
/// time.
fn http(name: &str, server: &[&str], args: &[&str]) {
    golden(name, || {
        let running = Server::start(server[0], &server[1..]);
        let mut all = args.to_vec();
        all.extend(["--through", running.url()]);
        let place = format!("http://{}", running.address());
        seen(&all, &[(&place, "http://HOST")])
    });
}

/// Looks at several servers at once: most of the time they are waited for.
fn together(reports: &[&(dyn Fn() + Sync)]) {
    thread::scope(|scope| {
        for report in reports {
            scope.spawn(report);
        }
    });
}

fn seen(args: &[&str], places: &[(&str, &str)]) -> String {
    let output = doctor(args);
    let errors = String::from_utf8(output.stderr).unwrap();
    let report = normal(&String::from_utf8(output.stdout).unwrap(), places);
    format!("exit code {}\n{errors}{report}", output.status.code().unwrap())
}

#[test]
fn kuzumem_by_hand() {
    let call = ["--call", "pagerank", "--without-token"];
    let other = ["--call", "get-component-dependencies"];
    together(&[
        &|| stdio("kuzumem-k1", &["kuzumem", "--variant", "k1", "--pace", "10ms"], &call),
        &|| stdio("kuzumem-k3s", &["kuzumem", "--variant", "k3s", "--pace", "30ms"], &other),
        &|| http("kuzumem-k2", &["kuzumem", "--variant", "k2", "--pace", "30ms"], &other),
        &|| http("kuzumem-k3h", &["kuzumem", "--variant", "k3h", "--pace", "30ms"], &other),
    ]);
}

#[test]
fn kuzumem_on_the_sdk() {
    let call = ["--call", "get-component-dependencies", "--without-token"];
    let twice = ["--call", "get-component-dependencies", "--concurrent"];
    let bank = ["--call", "memory-bank"];
    together(&[
        &|| stdio("kuzumem-k4", &["kuzumem", "--variant", "k4", "--pace", "30ms"], &call),
        &|| http("kuzumem-k5", &["kuzumem", "--variant", "k5", "--pace", "30ms"], &call),
        &|| stdio("kuzumem-k6", &["kuzumem", "--variant", "k6", "--pace", "30ms"], &twice),
        &|| stdio("kuzumem-head", &["kuzumem", "--variant", "head", "--pace", "50ms"], &bank),
    ]);
}

#[test]
fn plexus() {
    let call = ["--call", "claudecode.chat"];
    let task = ["--call", "orcha.run_task"];
    together(&[
        &|| stdio("plexus-p2", &["plexus", "--pace", "120ms"], &call),
        &|| http("plexus-p0", &["plexus", "--variant", "p0", "--pace", "120ms"], &call),
        &|| http("plexus-p1", &["plexus", "--variant", "p1", "--pace", "120ms"], &call),
        &|| http("plexus-p2-http", &["plexus", "--variant", "p2", "--pace", "120ms"], &task),
    ]);
}

#[test]
fn scout() {
    let call = ["--call", "run_materialization"];
    together(&[&|| stdio("scout", &["scout", "--pace", "120ms"], &call), &|| {
        http("scout-http", &["scout", "--pace", "120ms"], &call)
    }]);
}

#[test]
fn silent() {
    let sleep = ["--call", "sleep", "--args", r#"{"seconds":3.2}"#, "--silence", "3s"];
    let burst = ["--call", "burst", "--args", r#"{"seconds":0.3}"#];
    together(&[
        &|| stdio("silent", &["silent"], &sleep),
        &|| stdio("silent-burst", &["silent"], &burst),
        &|| http("silent-http", &["silent", "--json"], &burst),
    ]);
}

#[test]
fn swissarmyhammer() {
    let shell = ["--call", "shell"];
    let review = ["--call", "review"];
    let s0 = ["swissarmyhammer", "--variant", "s0", "--pace", "120ms"];
    let s1 = ["swissarmyhammer", "--variant", "s1", "--pace", "120ms"];
    let s2 = ["swissarmyhammer", "--variant", "s2", "--pace", "120ms", "--keep-alive", "80ms"];
    together(&[
        &|| stdio("swissarmyhammer-s0", &s0, &shell),
        &|| stdio("swissarmyhammer-s1", &s1, &shell),
        &|| stdio("swissarmyhammer-s2", &s2, &review),
        &|| http("swissarmyhammer-s2-http", &s2, &review),
    ]);
}

#[test]
fn mcp_devtools() {
    let call = ["--call", "project_actions"];
    let server = ["mcp_devtools", "--lines", "20", "--late", "2", "--pace", "120ms"];
    let in_arguments =
        ["--call", "project_actions", "--args", r#"{"_meta":{"progressToken":"own"}}"#];
    together(&[
        &|| stdio("mcp_devtools", &server, &call),
        &|| stdio("mcp_devtools-token", &server, &in_arguments),
        &|| http("mcp_devtools-http", &server, &in_arguments),
    ]);
}

#[test]
fn answers_in_unusual_places_of_http() {
    let call = ["--call", "steps", "--revision", "2025-06-18"];
    together(&[&|| http("odd-answers-on-get", &["odd", "--answers", "get"], &call), &|| {
        http("odd-answers-accepted", &["odd", "--answers", "accepted"], &call)
    }]);
}
