//! Bad files and command lines, and the messages of the commands about them.

use std::error::Error;
use std::path::Path;

use clap::Parser;
use milepost::commands::args::{Cli, Command};
use milepost::commands::stats;
use milepost::lab::replay;
use milepost::observe::error_chain::error_chain;

use super::{compare, one_line, rows};
use crate::commands::route_files::{folder, parse};
use crate::support::milepost;

/// A text without the place of a temporary folder.
fn without(place: &Path, text: &str) -> String {
    one_line(
        &text
            .replace(&format!("{}/", place.display()), "")
            .replace(&*place.to_string_lossy(), "FOLDER"),
    )
}

#[test]
fn route_files() {
    let answers: Vec<String> = rows("route-files")
        .iter()
        .map(|row| {
            let text = String::from_utf8(row.input()).unwrap();
            let said = match parse(&text) {
                Ok(_) => "accepted".to_owned(),
                Err(error) => error_chain(&error),
            };
            assert!(!said.contains("s3cret"), "{}: {said}", row.name);
            without(folder(), &said)
        })
        .collect();
    compare("route-files", &answers);
}

fn command(args: &[&str]) -> Command {
    Cli::try_parse_from([&["milepost"], args].concat()).unwrap().command
}

fn said(error: &dyn Error) -> String {
    error_chain(error)
}

#[test]
fn recordings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r");
    let answers: Vec<String> = rows("recordings")
        .iter()
        .map(|row| {
            std::fs::write(&file, row.input()).unwrap();
            let Command::Replay(args) = command(&["replay", file.to_str().unwrap()]) else {
                unreachable!()
            };
            let text =
                match replay::run(&args.file, args.form(None), |policy| args.settings(policy)) {
                    Ok(played) if played.is_equal => "as it was recorded".to_owned(),
                    Ok(played) => played.text.lines().last().unwrap_or_default().to_owned(),
                    Err(error) => said(&error),
                };
            without(folder.path(), &text)
        })
        .collect();
    compare("recordings", &answers);
}

#[test]
fn state_files() {
    let answers: Vec<String> = rows("state")
        .iter()
        .map(|row| {
            let folder = tempfile::tempdir().unwrap();
            let (name, bytes) = row.written.split_once(' ').unwrap_or((&row.written, ""));
            let place = folder.path().join("state");
            match name {
                "missing" => {}
                "file" => std::fs::write(&place, super::bytes(bytes)).unwrap(),
                "folder" => {
                    std::fs::create_dir_all(place.join(milepost::observe::durations::FILE)).unwrap()
                }
                name => {
                    std::fs::create_dir(&place).unwrap();
                    std::fs::write(place.join(name), super::bytes(bytes)).unwrap();
                }
            }
            let Command::Stats(args) = command(&["stats", "--state-dir", place.to_str().unwrap()])
            else {
                unreachable!()
            };
            let text = stats::run(&args).unwrap_or_else(|error| said(&error));
            without(folder.path(), &text)
        })
        .collect();
    compare("state", &answers);
}

#[test]
fn command_lines() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty.toml"), "").unwrap();
    std::fs::write(
        folder.path().join("demo.toml"),
        "[[route]]\npath = \"/demo\"\nupstream.demo = true\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("binary"), [0xff, 0xfe, 0]).unwrap();
    let answer = |row: &super::Row| {
        let args = row.written.split_whitespace().map(|word| if word == "''" { "" } else { word });
        let mut command = milepost();
        command.args(args).current_dir(folder.path()).env("BAD_TOKEN", "a\nb").env("EMPTY", "");
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
        let code =
            output.status.code().map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        without(folder.path(), &format!("{code} {first}"))
    };
    let rows = rows("command-lines");
    let answers: Vec<String> = std::thread::scope(|scope| {
        let halves = rows.chunks(rows.len().div_ceil(4));
        let running: Vec<_> = halves
            .map(|rows| scope.spawn(|| rows.iter().map(answer).collect::<Vec<_>>()))
            .collect();
        running.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    compare("command-lines", &answers);
}
