//! `milepost stats`: prints the learned durations of tools, and the learned habits of clients.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::commands::columns::{ago, columns, printable};
use crate::config::values::{StateDir, nearest};
use crate::observe::durations;
use crate::observe::durations::{
    ClientRow, FILE, Store, StoreError, ToolRow, path_in_label, state_dir,
};
use crate::observe::printable::{TextForm, printable as escaped};
use crate::protocol::order;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this route: its path, or the name of a command or an address
    #[arg(long, value_name = "ROUTE")]
    route: Option<String>,
    /// Only this tool
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Print all tools, not only the 20 that were called last
    #[arg(long)]
    all: bool,
    /// Print JSON of all tools and clients: an array of objects, times in milliseconds, `last_seen` in seconds since 1970
    #[arg(long, conflicts_with = "forget")]
    json: bool,
    /// Delete the durations of the route and the limits of its clients, or only the durations of that tool
    #[arg(long, requires = "route")]
    forget: bool,
    /// The folder of the durations [default: $MILEPOST_STATE_DIR, $XDG_STATE_HOME/milepost or
    /// ~/.local/state/milepost]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<StateDir>,
}

/// An error of `milepost stats`.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// The file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No directory for durations is known.
    #[error(
        "no durations are kept, because there is no folder for them; name a folder with --state-dir"
    )]
    Nowhere,
    /// The durations contain no such route or tool.
    #[error("{0}")]
    Unknown(String),
}

/// Returns the output of `milepost stats`.
///
/// # Errors
/// If the durations cannot be read, or none are known for the route or tool.
pub fn run(args: &Args) -> Result<String, StatsError> {
    let folder = state_dir(args.state_dir.as_ref(), None).ok_or(StatsError::Nowhere)?;
    let mut store = Store::new(&folder);
    let all = store.read()?;
    let mut rows: Vec<&ToolRow> = all.iter().filter(|entry| is_meant(args, entry)).collect();
    order::sort_by(&mut rows, |a, b| (&a.route, &a.tool).cmp(&(&b.route, &b.tool)));
    // Clients belong to a route, and to none of its tools.
    let clients = if args.tool.is_some() { Vec::new() } else { store.read_clients()? };
    let is_on_route = |row: &&ClientRow| {
        args.route
            .as_ref()
            .is_none_or(|route| row.route == *route || path_in_label(&row.route) == Some(route))
    };
    let clients: Vec<&ClientRow> = clients.iter().filter(is_on_route).collect();
    let is_nothing = rows.is_empty() && clients.is_empty();
    if is_nothing && (args.route.is_some() || args.tool.is_some()) {
        return Err(StatsError::Unknown(unknown(args, &all)));
    }
    if args.forget {
        for label in clients.iter().map(|row| &*row.route).collect::<BTreeSet<&str>>() {
            store.forget_clients(label)?;
        }
        let labels: BTreeSet<&str> = rows.iter().map(|row| &*row.route).collect();
        let mut gone = 0;
        for label in labels {
            gone += store.forget(label, args.tool.as_deref())?;
        }
        let tools = if gone == 1 { "tool" } else { "tools" };
        return Ok(format!("{gone} {tools} forgotten\n"));
    }
    if args.json {
        return Ok(json(&rows, &clients));
    }
    let known_clients = client_table(&clients, durations::now());
    if rows.is_empty() {
        if !known_clients.is_empty() {
            return Ok(known_clients);
        }
        return Ok(nothing_yet(folder.join(FILE)));
    }
    let left_out = if args.all { 0 } else { keep_newest(&mut rows, NEWEST) };
    let mut text = table(&rows, durations::now());
    if left_out > 0 {
        let tools = if left_out == 1 { "tool" } else { "tools" };
        text += &format!("{left_out} {tools} called earlier; --all prints all\n");
    }
    if !known_clients.is_empty() {
        text += "\n";
        text += &known_clients;
    }
    Ok(text)
}

/// Maximum number of tools that are printed without `--all`.
const NEWEST: usize = 20;

/// Keeps the rows of the tools that were called last, in their order. Returns the number of removed rows.
fn keep_newest(rows: &mut Vec<&ToolRow>, max: usize) -> usize {
    let left_out = rows.len().saturating_sub(max);
    if left_out > 0 {
        let mut newest = rows.clone();
        // A stable sort keeps the order of tools that were called in the same second.
        order::sort_by_key(&mut newest, |row| std::cmp::Reverse(row.seen));
        newest.truncate(max);
        rows.retain(|row| newest.iter().any(|kept| std::ptr::eq(*kept, *row)));
    }
    left_out
}

fn is_meant(args: &Args, entry: &ToolRow) -> bool {
    args.route.as_ref().is_none_or(|route| is_on(entry, route))
        && args.tool.as_ref().is_none_or(|tool| *tool == entry.tool)
}

/// Whether an entry belongs to a route: `route` is the entry's label, or the path in it.
fn is_on(entry: &ToolRow, route: &str) -> bool {
    entry.route == route || path_in_label(&entry.route) == Some(route)
}

fn nothing_yet(file: PathBuf) -> String {
    format!(
        "nothing is known yet: no call of a tool has succeeded since there is {}\n",
        file.display()
    )
}

fn unknown(args: &Args, all: &[ToolRow]) -> String {
    let routes: BTreeSet<&str> = all.iter().map(|entry| &*entry.route).collect();
    let on_route = |entry: &&ToolRow| args.route.as_ref().is_none_or(|route| is_on(entry, route));
    if let Some(route) = args.route.as_deref().filter(|_| !all.iter().any(|one| on_route(&one))) {
        let paths = routes.iter().filter_map(|label| path_in_label(label));
        return missing("route", route, paths.chain(routes.iter().copied()).collect());
    }
    let tools: BTreeSet<&str> = all.iter().filter(on_route).map(|entry| &*entry.tool).collect();
    missing("tool", args.tool.as_deref().unwrap_or_default(), tools)
}

fn missing(what: &str, name: &str, known: BTreeSet<&str>) -> String {
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {:?}?", printable(near)),
        None if known.is_empty() => format!("no {what} is"),
        None => {
            let known: Vec<String> = known.into_iter().map(printable).collect();
            format!("known are {}", known.join(", "))
        }
    };
    format!("the {what} {name:?} is not known; {hint}")
}

fn json(rows: &[&ToolRow], clients: &[&ClientRow]) -> String {
    let mut objects: Vec<serde_json::Value> = rows
        .iter()
        .map(|ToolRow { route, tool, durations, seen }| {
            serde_json::json!({
                "route": route,
                "tool": tool,
                "calls": durations.samples().len(),
                "median_ms": durations.quantile(0.5),
                "p90_ms": durations.quantile(0.9),
                "longest_ms": durations.quantile(1.0),
                "errors": durations.errors,
                "cancelled": durations.given_up,
                "last_seen": seen,
                "reports_figures": durations.are_figured(),
            })
        })
        .collect();
    objects.extend(clients.iter().map(|ClientRow { route, client, habits, seen }| {
        serde_json::json!({
            "route": route,
            "client": client,
            "gives_up_after_ms": habits.clock,
            "cancels": !habits.leaves_calls_open(),
            "calls_again": habits.is_told(),
            "last_seen": seen,
        })
    }));
    let text = serde_json::to_string_pretty(&objects).unwrap_or_else(|error| error.to_string());
    // Line breaks are formatting and stay. Characters of names that could control a terminal are escaped, even if JSON
    // allows them.
    text.lines().fold(String::new(), |out, line| out + &escaped(line, TextForm::Json) + "\n")
}

/// The titles of the columns: two with text, the others with numbers.
const HEAD: [&str; 10] = [
    "ROUTE",
    "TOOL",
    "CALLS",
    "MEDIAN",
    "P90",
    "LONGEST",
    "ERRORS",
    "CANCELLED",
    "SEEN",
    "FIGURES",
];

fn table(rows: &[&ToolRow], now: u64) -> String {
    let cells = rows.iter().map(|ToolRow { route, tool, durations, seen }| {
        let time = |share| durations.quantile(share).map_or_else(|| "-".to_owned(), spell);
        [
            printable(route),
            printable(tool),
            durations.samples().len().to_string(),
            time(0.5),
            time(0.9),
            time(1.0),
            durations.errors.to_string(),
            durations.given_up.to_string(),
            ago(now.saturating_sub(*seen)),
            if durations.are_figured() { "its own" } else { "none" }.to_owned(),
        ]
    });
    columns(HEAD, cells, 2)
}

/// Returns a table of the clients with learned limits or habits; empty if there are none.
fn client_table(clients: &[&ClientRow], now: u64) -> String {
    const HEAD: [&str; 6] = ["ROUTE", "CLIENT", "GIVES UP AFTER", "CANCELS", "CALLS AGAIN", "SEEN"];
    let matters = |row: &&&ClientRow| {
        row.habits.clock.is_some() || row.habits.leaves_calls_open() || !row.habits.is_told()
    };
    if !clients.iter().any(|row| matters(&row)) {
        return String::new();
    }
    let yes_or_no = |yes| if yes { "yes" } else { "no" }.to_owned();
    let cells = clients.iter().filter(matters).map(|ClientRow { route, client, habits, seen }| {
        [
            printable(route),
            printable(client),
            habits.clock.map_or_else(|| "-".to_owned(), spell),
            yes_or_no(!habits.leaves_calls_open()),
            yes_or_no(habits.is_told()),
            ago(now.saturating_sub(*seen)),
        ]
    });
    columns(HEAD, cells, 2)
}

fn spell(millis: u32) -> String {
    match millis {
        0..1000 => format!("{millis}ms"),
        1000..60_000 => format!("{}.{}s", millis / 1000, millis / 100 % 10),
        60_000..3_600_000 => format!("{}m{:02}s", millis / 60_000, millis / 1000 % 60),
        _ => format!("{}h{:02}m", millis / 3_600_000, millis / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::client_habits::ClientHabits;
    use crate::progress::clients::is_unprintable;
    use crate::progress::durations::{Durations, Sample};

    fn entry(route: &str, tool: &str, millis: &[u32], has_figure: bool) -> ToolRow {
        let samples = millis.iter().map(|millis| Sample { millis: *millis, has_figure });
        let durations = Durations::new(samples, 2, 1);
        ToolRow { route: route.to_owned(), tool: tool.to_owned(), durations, seen: 1000 }
    }

    #[test]
    fn a_line_says_what_is_known_of_a_tool() {
        let rows = [
            entry("/reports", "run_report", &[38_000, 42_500, 3_700_000], false),
            entry("npx#3fa2b1c0", "e\u{1b}[2J\u{202e}cho", &[4, 8], true),
        ];
        let rows: Vec<&ToolRow> = rows.iter().collect();
        let expected = "\
ROUTE         TOOL        CALLS  MEDIAN    P90  LONGEST  ERRORS  CANCELLED    SEEN  FIGURES
/reports      run_report      3   42.5s  1h01m    1h01m       2          1  5m ago     none
npx#3fa2b1c0  e\u{fffd}[2J\u{fffd}cho       2     4ms    8ms      8ms       2          1  5m ago  its own
";
        assert_eq!(table(&rows, 1300), expected);
    }

    #[test]
    fn the_tools_that_were_called_last_are_kept_in_order() {
        let seen = |tool: &str, seen| ToolRow { seen, ..entry("/a", tool, &[1], false) };
        let all = [seen("a", 5), seen("b", 9), seen("c", 7), seen("d", 7)];
        let mut rows: Vec<&ToolRow> = all.iter().collect();
        assert_eq!(keep_newest(&mut rows, 2), 2);
        assert_eq!(rows.iter().map(|row| &*row.tool).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(keep_newest(&mut rows, 2), 0);
    }

    #[test]
    fn json_holds_no_sign_that_turns_text_around() {
        let row = entry("/a", "e\u{202e}\u{9b}cho", &[4], true);
        let text = json(&[&row], &[]);
        assert!(!text.replace('\n', "").chars().any(is_unprintable), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read[0]["tool"], "e\u{202e}\u{9b}cho");
    }

    #[test]
    fn a_line_says_what_is_known_of_a_client() {
        let row = |client: &str, habits| ClientRow {
            route: "/a".to_owned(),
            client: client.to_owned(),
            habits,
            seen: 1000,
        };
        let clock = ClientHabits { clock: Some(5000), ..ClientHabits::default() };
        let open = ClientHabits { left_open: 2, told_in_vain: 2, ..ClientHabits::default() };
        let rows = [row("one", clock), row("two", ClientHabits::default()), row("three", open)];
        let rows: Vec<&ClientRow> = rows.iter().collect();
        let expected = "\
ROUTE  CLIENT  GIVES UP AFTER  CANCELS  CALLS AGAIN    SEEN
/a     one               5.0s      yes          yes  5m ago
/a     three                -       no           no  5m ago
";
        assert_eq!(client_table(&rows, 1300), expected);
        assert_eq!(client_table(&rows[1..2], 1300), "");
    }

    #[test]
    fn times_are_spelled_shortly() {
        let told = [0, 999, 1000, 59_999, 60_000, 3_599_999, 3_600_000].map(spell);
        assert_eq!(told, ["0ms", "999ms", "1.0s", "59.9s", "1m00s", "59m59s", "1h00m"]);
    }
}
