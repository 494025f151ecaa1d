//! `milepost ls`: lists the servers of this machine's clients, and the processes of Milepost that run now.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::commands::adopt::{self, ListedFile, ListedServer};
use crate::commands::args::LsArgs;
use crate::commands::columns::{ago, columns, printable};
use crate::commands::sites::{self, JSON, Site};
use crate::gateway::listen::AboutProcess;
use crate::observe::durations;
use crate::observe::error_chain::error_chain;
use crate::observe::printable::printable_json;
use crate::platform::files;

/// Deadline for a process to send its open calls.
const CALLS_WAIT: Duration = Duration::from_secs(2);

/// The titles of the columns in the table of servers.
const SERVERS: [&str; 4] = ["CLIENT", "SERVER", "WRAPPED", "FILE"];

/// The titles of the columns in the table of processes: two with text, the others with numbers.
const PROCESSES: [&str; 5] = ["PROCESS", "SERVER", "PID", "OPEN CALLS", "STARTED"];

/// The output of `milepost ls`.
#[derive(Debug)]
pub struct LsOutput {
    /// The text for standard output.
    pub text: String,
    /// Warnings for standard error, one for each file that cannot be read. With `--json` they are in the text instead.
    pub warnings: Vec<String>,
    /// Whether each file of a client was read.
    pub is_complete: bool,
}

/// A process of this user that shows its calls.
#[derive(Debug, Serialize)]
struct RunningProcess {
    #[serde(flatten)]
    about: AboutProcess,
    /// Number of unanswered calls; `None` if the process did not report it.
    open: Option<i64>,
    routes: Vec<RunningRoute>,
}

/// A route of a `serve`, or the server of a `wrap`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RunningRoute {
    route: String,
    /// The name that the server gave in its answer to `initialize`.
    server: Option<String>,
    open: i64,
}

/// The part of the answer to `/calls` that `ls` uses.
#[derive(Debug, Deserialize)]
struct CallsNow {
    routes: Vec<RunningRoute>,
}

/// Reads the files of clients, and asks the processes of this user.
pub async fn run(args: &LsArgs) -> LsOutput {
    let found = adopt::list();
    let processes = processes().await;
    let is_complete = found.iter().all(|file| file.servers.is_ok());
    if args.json {
        let text = printable_json(&as_json(&found, &processes)) + "\n";
        return LsOutput { text, warnings: Vec::new(), is_complete };
    }
    let errors = found.iter().filter_map(|file| file.servers.as_ref().err());
    let warnings = errors.map(|error| printable(&error_chain(error))).collect();
    let home = files::home().unwrap_or_default();
    let servers = servers_text(&found, Path::new(&home));
    let text = format!("{servers}\n{}", processes_text(&processes, durations::now()));
    LsOutput { text, warnings, is_complete }
}

/// Returns the processes of this user that have a local socket.
async fn processes() -> Vec<RunningProcess> {
    let Some(folder) = sites::folder() else { return Vec::new() };
    let found = sites::find(&folder).await;
    join_all(found.into_iter().map(process)).await.into_iter().flatten().collect()
}

async fn process(mut site: Site) -> Option<RunningProcess> {
    let about = site.about()?.clone();
    let routes = timeout(CALLS_WAIT, routes(&mut site)).await.ok().flatten();
    let open = routes
        .as_ref()
        .map(|routes| routes.iter().map(|route| route.open).fold(0, i64::saturating_add));
    Some(RunningProcess { about, open, routes: routes.unwrap_or_default() })
}

/// Returns the routes of a process with their open calls; `None` if the process has just ended.
async fn routes(site: &mut Site) -> Option<Vec<RunningRoute>> {
    let whole = site.get("/calls", JSON).await.ok()?.whole().await.ok()?;
    let calls: CallsNow = serde_json::from_slice(&whole).ok()?;
    Some(calls.routes)
}

/// Returns the servers of all files that could be read.
fn listed(found: &[ListedFile]) -> impl Iterator<Item = (&ListedFile, &ListedServer)> {
    found.iter().flat_map(|file| {
        let servers = file.servers.as_deref().unwrap_or_default();
        servers.iter().map(move |server| (file, server))
    })
}

fn as_json(found: &[ListedFile], processes: &[RunningProcess]) -> Value {
    let servers = listed(found).map(|(file, server)| {
        json!({
            "client": file.client,
            "server": server.name,
            "project": server.project,
            "wrapped": server.is_wrapped,
            "file": file.path.display().to_string(),
        })
    });
    let unreadable = found.iter().filter_map(|file| {
        let error = file.servers.as_ref().err()?;
        let path = file.path.display().to_string();
        Some(json!({ "client": file.client, "file": path, "why": error_chain(error) }))
    });
    json!({
        "servers": servers.collect::<Vec<_>>(),
        "processes": processes,
        "unreadable": unreadable.collect::<Vec<_>>(),
    })
}

/// Returns the table of servers. A path below the directory `home` is shortened with `~`.
fn servers_text(found: &[ListedFile], home: &Path) -> String {
    let is_wrapped: Vec<bool> = listed(found).map(|(_, server)| server.is_wrapped).collect();
    if is_wrapped.is_empty() {
        return "no server is in a known file of a client; for another file: milepost adopt FILE\n"
            .to_owned();
    }
    let rows = listed(found).map(|(file, server)| {
        let name = match &server.project {
            None => printable(&server.name),
            Some(project) => printable(&format!("{} ({project})", server.name)),
        };
        let wrapped = if server.is_wrapped { "yes" } else { "no" };
        [file.client.to_owned(), name, wrapped.to_owned(), printable(&short_path(&file.path, home))]
    });
    let mut text = columns(SERVERS, rows, SERVERS.len());
    let (all, bare) = (is_wrapped.len(), is_wrapped.iter().filter(|wrapped| !**wrapped).count());
    if bare > 0 {
        text += &format!("not wrapped: {bare} of {all}; to see what can be done: milepost adopt\n");
    }
    text
}

/// Returns a path for people, with `~` for the home directory.
fn short_path(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(rest) if home.is_absolute() => format!("~/{}", rest.display()),
        _ => path.display().to_string(),
    }
}

fn processes_text(processes: &[RunningProcess], now: u64) -> String {
    if processes.is_empty() {
        return "nothing runs: no `milepost wrap` of this user has a client, and no `milepost serve` an \
                [admin] table\n"
            .to_owned();
    }
    let rows = processes.iter().map(|process| {
        let about = &process.about;
        [
            printable(&about.kind),
            printable(&process.server()),
            about.pid.to_string(),
            process.open.map_or_else(|| "-".to_owned(), |open| open.to_string()),
            ago(now.saturating_sub(about.since / 1000)),
        ]
    });
    columns(PROCESSES, rows, 2)
}

impl RunningProcess {
    /// Returns the name of a `wrap` process's server (the server's own name, if known), or a `serve` process's address
    /// and number of routes.
    fn server(&self) -> String {
        let name = &self.about.name;
        match (&*self.about.kind, self.routes.as_slice()) {
            ("wrap", [route]) => route.server.as_ref().unwrap_or(name).clone(),
            ("serve", [_]) => format!("{name}, 1 route"),
            ("serve", routes @ [_, ..]) => format!("{name}, {} routes", routes.len()),
            _ => name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(client: &'static str, path: &str, servers: Vec<ListedServer>) -> ListedFile {
        ListedFile { client, path: path.into(), servers: Ok(servers) }
    }

    fn server(name: &str, project: Option<&str>, is_wrapped: bool) -> ListedServer {
        ListedServer { name: name.to_owned(), project: project.map(str::to_owned), is_wrapped }
    }

    fn process(
        kind: &str,
        name: &str,
        pid: u32,
        routes: &[(&str, Option<&str>, i64)],
    ) -> RunningProcess {
        let about = AboutProcess {
            kind: kind.to_owned(),
            pid,
            name: name.to_owned(),
            since: 1_000_500,
            version: "1".to_owned(),
        };
        let route = |(route, server, open): &(&str, Option<&str>, i64)| RunningRoute {
            route: (*route).to_owned(),
            server: server.map(str::to_owned),
            open: *open,
        };
        let routes: Vec<RunningRoute> = routes.iter().map(route).collect();
        let open = (!routes.is_empty()).then(|| routes.iter().map(|route| route.open).sum());
        RunningProcess { about, open, routes }
    }

    #[test]
    fn each_server_has_a_line_with_its_client_and_its_file() {
        let found = [
            file(
                "Claude Code",
                "/h/.claude.json",
                vec![server("reports", None, true), server("a\u{1b}[2Jb", Some("/h/shop"), false)],
            ),
            file("Zed", "/h/.config/zed/settings.json", Vec::new()),
            file("VS Code", "/srv/x/.vscode/mcp.json", vec![server("search", None, false)]),
        ];
        let expected = "\
CLIENT       SERVER            WRAPPED  FILE
Claude Code  reports           yes      ~/.claude.json
Claude Code  a\u{fffd}[2Jb (/h/shop)  no       ~/.claude.json
VS Code      search            no       /srv/x/.vscode/mcp.json
not wrapped: 2 of 3; to see what can be done: milepost adopt
";
        assert_eq!(servers_text(&found, Path::new("/h")), expected);
        assert!(servers_text(&found[1..2], Path::new("/h")).starts_with("no server is in"));
        assert!(
            !servers_text(&[file("Zed", "/x", vec![server("a", None, true)])], Path::new(""))
                .contains("not wrapped")
        );
    }

    #[test]
    fn each_process_has_a_line_with_its_server_and_its_open_calls() {
        let running = [
            process("wrap", "python3", 41, &[("python3", Some("factory"), 2)]),
            process("wrap", "server.js", 4200, &[("server.js", None, 0)]),
            process("serve", "127.0.0.1:7332", 7, &[("/a", None, 1), ("/b", Some("git"), 3)]),
            process("serve", "[::1]:1", 8, &[]),
        ];
        let expected = "\
PROCESS  SERVER                     PID  OPEN CALLS  STARTED
wrap     factory                     41           2   5m ago
wrap     server.js                 4200           0   5m ago
serve    127.0.0.1:7332, 2 routes     7           4   5m ago
serve    [::1]:1                      8           -   5m ago
";
        assert_eq!(processes_text(&running, 1_300), expected);
        assert!(processes_text(&[], 0).starts_with("nothing runs"));
    }

    #[test]
    fn json_has_what_the_tables_have_and_the_faults_of_files() {
        let error = adopt::AdoptError::Changed("/h/bad.json".into());
        let bad = ListedFile { client: "Cursor", path: "/h/bad.json".into(), servers: Err(error) };
        let found = [file("Codex", "/h/config.toml", vec![server("a", None, true)]), bad];
        let running = [process("wrap", "python3", 41, &[("python3", Some("factory"), 2)])];
        let expected = json!({
            "servers": [
                { "client": "Codex", "server": "a", "project": null, "wrapped": true, "file": "/h/config.toml" },
            ],
            "processes": [{
                "kind": "wrap", "pid": 41, "name": "python3", "since": 1_000_500, "version": "1", "open": 2,
                "routes": [{ "route": "python3", "server": "factory", "open": 2 }],
            }],
            "unreadable": [{
                "client": "Cursor", "file": "/h/bad.json",
                "why": "/h/bad.json has changed meanwhile; nothing was written, try again",
            }],
        });
        assert_eq!(as_json(&found, &running), expected);
    }
}
