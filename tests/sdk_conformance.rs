//! The conformance suite of the protocol sees no difference between a server and Milepost before it,
//! nor between a client and Milepost behind it.

use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

use crate::support::{MILEPOST, home, wait};

/// Beside its own limit. It takes a minute.
const PATIENCE: Duration = Duration::from_secs(900);

/// All that the suite has and the table does not; the script has the reasons.
const LEFT_OUT: [&str; 3] = [
    "left out: auth/2025-03-26-oauth-metadata-backcompat",
    "not compared (stdio): server-sse-polling, server-sse-disconnect-resume",
    "not compared (stdio): server-sse-multiple-streams, server-sse-streams-functional",
];

#[test]
fn every_check_of_the_conformance_suite_says_the_same_with_milepost() {
    let _aside = crate::QUIET.read().unwrap_or_else(PoisonError::into_inner);
    let mut child = Command::new(home().join("tests/sdk/conformance"))
        .args(["--deadline", "840"])
        .env("MILEPOST", MILEPOST)
        .env_remove("MILEPOST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = crate::support::sdk::collect(child.stdout.take().unwrap());
    let status = wait(&mut child, PATIENCE);
    let table = stdout();
    println!("{table}");
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{table}");
    assert!(table.matches(" yes").count() > 150, "too few scenarios:\n{table}");
    let is_left_out =
        |line: &&str| line.starts_with("left out") || line.starts_with("not compared");
    let left_out: Vec<&str> = table.lines().filter(is_left_out).collect();
    let named = left_out.iter().zip(LEFT_OUT).all(|(line, name)| line.starts_with(name));
    assert!(named && left_out.len() == LEFT_OUT.len(), "{left_out:#?}");
}
