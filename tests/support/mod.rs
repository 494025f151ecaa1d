//! Programs for tests: their paths, and how they are started and ended.
#![allow(dead_code, reason = "no test binary needs all of it")]

pub(crate) mod exchange;
pub(crate) mod fake;
pub(crate) mod forward_proxy;
pub(crate) mod messages;
pub(crate) mod sdk;
pub(crate) mod secrets;
pub(crate) mod sections;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod socket_child;

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Deadline for any step of a test, on a busy machine. Whatever takes longer is stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

/// Maximum number of tries of a scene in which a busy machine may delay or join steps.
const TRIES: usize = 5;

/// The program under test.
pub(crate) const MILEPOST: &str = env!("CARGO_BIN_EXE_milepost");

/// The variable in the environment of every process, so that tests store nothing. `--state-dir` overrides it.
pub(crate) const FORGETFUL: (&str, &str) = ("MILEPOST_STATE_DIR", "off");

/// Variables that are removed from the environment of every process, because they would make it use a proxy.
const PROXY_VARIABLES: [&str; 9] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "REQUEST_METHOD",
];

/// Returns a command that runs the program under test.
pub(crate) fn milepost() -> Command {
    let mut command = Command::new(MILEPOST);
    command.env(FORGETFUL.0, FORGETFUL.1).env_remove("XDG_RUNTIME_DIR");
    for name in PROXY_VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Returns the directory of this package.
pub(crate) fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of an example server. Builds it if necessary: cargo builds none for a single test binary.
pub(crate) fn example(name: &str) -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let profile = Path::new(MILEPOST).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--examples", "--target-dir"]);
        cargo.arg(profile.parent().unwrap()).current_dir(home());
        if cfg!(feature = "fleet-valkey") {
            cargo.arg("--all-features");
        }
        // Remove the variables that cargo sets for this test: they would make build scripts run again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let is_ours = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
            if is_ours || text == "OUT_DIR" {
                cargo.env_remove(&name);
            }
        }
        match profile.file_name().and_then(OsStr::to_str) {
            Some("debug") | None => {}
            Some(name) => drop(cargo.args(["--profile", name])),
        }
        assert!(cargo.status().unwrap().success(), "the examples do not build");
        profile.join("examples")
    });
    folder.join(name).to_str().unwrap().to_owned()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + STUCK;
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a scene of real processes that depends on timing, until it succeeds once. Reports the last failure.
#[track_caller]
pub(crate) fn within_tries(mut scene: impl FnMut()) {
    for _ in 1..TRIES {
        if catch_unwind(AssertUnwindSafe(&mut scene)).is_ok() {
            return;
        }
    }
    scene();
}

/// Waits for a process. Kills it if it takes longer than `patience`.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process with this id runs. A zombie does not count.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, tail)| tail.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
