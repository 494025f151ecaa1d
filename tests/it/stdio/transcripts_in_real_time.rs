//! Transcripts played again, through the real process and a real child, in real time: those that take at most a few
//! seconds and do not depend on a single millisecond.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::core::transcripts::{duration, transcripts_of_one_client, unprintable};
use crate::support::sections::Section;

/// How long a line may take from one end to the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Transcripts that are played at the same time: most of their time is sleep.
const AT_ONCE: usize = 6;

/// Returns the flags for the settings of a transcript; `None` if a setting has no flag.
fn flags(text: &str) -> Option<Vec<String>> {
    let mut flags = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("! ")) {
        if line == "summaries" {
            continue;
        }
        for setting in line.split_whitespace() {
            let (key, value) = setting.split_once('=')?;
            match (key, value) {
                ("heartbeat", "off") => flags.push("--no-heartbeat".to_owned()),
                ("keep-original" | "estimate", "on") => flags.push(format!("--{key}")),
                ("words-in-2024", "off") => flags.push("--words-in-2024=off".to_owned()),
                ("dialects", names) => {
                    let names =
                        names.split(',').flat_map(|name| ["--dialect".to_owned(), name.to_owned()]);
                    flags.extend(names);
                }
                (
                    "mode" | "hold" | "guard" | "first-after" | "min-interval" | "on-fall"
                    | "scale" | "extract",
                    value,
                ) => {
                    flags.extend([format!("--{key}"), value.to_owned()]);
                }
                (
                    "response-id" | "error-shape" | "bare-result" | "orphan-answer" | "missing-id"
                    | "envelope" | "ping" | "unicode" | "split-line",
                    "off",
                ) => {
                    flags.extend(["--no-repair".to_owned(), key.to_owned()]);
                }
                _ => return None,
            }
        }
    }
    Some(flags)
}

/// Whether a transcript can be played in real time.
fn is_robust(text: &str) -> bool {
    let times: Vec<Duration> =
        text.lines().filter_map(|line| line.strip_prefix("+ ")).map(duration).collect();
    let short = times.iter().sum::<Duration>() <= Duration::from_secs(4);
    let coarse = times.iter().all(|time| *time >= Duration::from_millis(200));
    let quiet =
        text.contains("heartbeat=off") || times.iter().sum::<Duration>() < Duration::from_secs(1);
    // Messages that follow at once must not depend on which line the proxy reads first.
    let unpaced = !text.contains("guard=0ms") || times.is_empty();
    // Standard error and standard output have no common order.
    let alone = !text.contains("\n2 ");
    alone && short && coarse && quiet && unpaced
}

/// Lines as they come out of a pipe.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let _ = tell.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
    });
    told
}

/// A message that passes untouched: once it is out, all that went in before it has been dealt with.
const SYNC: &str = r#"{"jsonrpc":"2.0","method":"sync"}"#;

fn play(folder: &Path, name: &str, text: &str, flags: &[String]) -> Vec<String> {
    let pipes = [folder.join(format!("{name}.in")), folder.join(format!("{name}.out"))];
    assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
    let mut proxy = crate::support::milepost()
        .arg("wrap")
        .args(flags)
        .args(["--", "sh", "-c", "exec 3<&0; cat <&3 > \"$1\" & exec cat \"$0\""])
        .args(&pipes)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut client = proxy.stdin.take().unwrap();
    let client_reads = lines(proxy.stdout.take().unwrap());
    let mut server = File::options().write(true).open(&pipes[0]).unwrap();
    let server_reads = lines(File::open(&pipes[1]).unwrap());
    let mut told = Vec::new();
    for line in text.lines() {
        let (sign, rest) = line.split_at(line.len().min(2));
        let message = [&unprintable(rest)[..], b"\n"].concat();
        match sign {
            "> " => {
                client.write_all(&[&message, SYNC.as_bytes(), b"\n"].concat()).unwrap();
                while server_reads.recv_timeout(PATIENCE).unwrap() != SYNC {}
            }
            "< " => {
                server.write_all(&[&message, SYNC.as_bytes(), b"\n"].concat()).unwrap();
                told.extend(
                    std::iter::from_fn(|| client_reads.recv_timeout(PATIENCE).ok())
                        .take_while(|line| line != SYNC),
                );
            }
            "+ " => std::thread::sleep(duration(rest)),
            _ => {}
        }
    }
    // Messages that still wait for their guard are written before this.
    std::thread::sleep(Duration::from_millis(100));
    drop((client, server));
    told.extend(client_reads.iter());
    proxy.wait().unwrap();
    told
}

#[test]
fn transcripts_come_out_the_same_through_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let fit: Vec<(Section, Vec<String>)> = transcripts_of_one_client()
        .filter(|transcript| is_robust(&transcript.text))
        .filter_map(|transcript| Some((flags(&transcript.text)?, transcript)))
        .map(|(flags, transcript)| (transcript, flags))
        .collect();
    assert!(fit.len() > 10, "{}", fit.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((transcript, flags)) = fit.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let text = &transcript.text;
                    let expected: Vec<&str> = text
                        .lines()
                        .filter_map(|line| line.strip_prefix("= "))
                        .map(str::trim_end)
                        .collect();
                    let mut told = Vec::new();
                    // A busy machine may miss a time of the gate, but not in every attempt.
                    for attempt in 0..6 {
                        let own = tempfile::tempdir_in(folder.path()).unwrap();
                        told = play(own.path(), &format!("try-{attempt}"), text, flags);
                        // Calls that a transcript leaves open are answered with an error when the server ends.
                        told.retain(|line| {
                            !line.contains("\"proxy\":\"milepost\"") || expected.contains(&&**line)
                        });
                        if told == expected {
                            break;
                        }
                    }
                    assert_eq!(told, expected, "{transcript}");
                }
            });
        }
    });
}
