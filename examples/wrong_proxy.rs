//! A proxy with one fault of your choice, to see what `milepost check-progress --proxy` says of it:
//!
//! ```text
//! milepost check-progress --proxy 'wrong_proxy drop {server}'
//! milepost check-progress --proxy 'http://127.0.0.1:{port}/mcp wrong_proxy forgetful {port} {url}'
//! ```

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, thread};

use serde_json::{Value, json};

const FAULTS: &str = "none hang hide double strip rename drop round swap buffer late mix invent \
                      keep-cancel keep-ping impatient; forgetful PORT URL";

/// What passes between the two directions.
#[derive(Default)]
struct Shared {
    /// The ids of open calls with their beginning, and whether one was given up.
    open: Vec<(Value, Instant)>,
    given_up: HashSet<String>,
    /// The token of the newest call.
    newest: Value,
}

fn main() -> io::Result<()> {
    let mut args = env::args().skip(1);
    let fault = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match (&*fault, &rest[..]) {
        ("forgetful", [port, url]) => forget_event_ids(port, url),
        (_, [program, args @ ..]) => on_streams(&fault, program, args),
        _ => {
            eprintln!("usage: wrong_proxy FAULT COMMAND...; the faults: {FAULTS}");
            std::process::exit(2);
        }
    }
}

fn on_streams(fault: &str, program: &str, args: &[String]) -> io::Result<()> {
    let mut server =
        Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut to_server, from_server) = (server.stdin.take(), server.stdout.take());
    let shared = Arc::new(Mutex::new(Shared::default()));
    let (own, own_fault) = (Arc::clone(&shared), fault.to_owned());
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str(&line) else { continue };
            if let (Some(message), Some(to)) =
                (to_be_sent(&own_fault, message, &own), &mut to_server)
            {
                let _ = writeln!(to, "{message}");
            }
        }
        drop(to_server);
    });
    if fault == "impatient" {
        let shared = Arc::clone(&shared);
        thread::spawn(move || give_up(&shared));
    }
    let mut back = Back { fault, kept: Vec::new(), count: 0 };
    for line in from_server.into_iter().flat_map(|from| BufReader::new(from).lines()) {
        let Ok(message) = serde_json::from_str(&line?) else { continue };
        for message in back.answers(message, &shared) {
            say(&message);
        }
    }
    server.wait().map(drop)
}

fn say(message: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}

/// What the server gets for a message of the client.
fn to_be_sent(fault: &str, mut message: Value, shared: &Mutex<Shared>) -> Option<Value> {
    let mut shared = shared.lock().ok()?;
    if message["method"] == "tools/call" {
        let token = message["params"]["_meta"]["progressToken"].clone();
        shared.open.push((message["id"].clone(), Instant::now()));
        match fault {
            "strip" => drop(message["params"].as_object_mut()?.remove("_meta")),
            "invent" if token.is_null() => {
                message["params"]["_meta"] = json!({ "progressToken": "mine" });
            }
            _ if !token.is_null() => shared.newest = token,
            _ => {}
        }
    }
    match (fault, message["method"].as_str()) {
        ("hang", _) | ("keep-cancel", Some("notifications/cancelled")) => None,
        _ => Some(message),
    }
}

/// Answers calls that take longer than half a second with an error.
fn give_up(shared: &Mutex<Shared>) {
    loop {
        thread::sleep(Duration::from_millis(50));
        let Ok(mut shared) = shared.lock() else { return };
        let late = |(_, since): &(Value, Instant)| since.elapsed() > Duration::from_millis(500);
        let ids: Vec<Value> =
            shared.open.iter().filter(|one| late(one)).map(|one| one.0.clone()).collect();
        shared.open.retain(|one| !late(one));
        for id in ids {
            shared.given_up.insert(id.to_string());
            let error = json!({ "code": -32001, "message": "Request timed out" });
            say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    }
}

/// The way back.
struct Back<'a> {
    fault: &'a str,
    kept: Vec<Value>,
    count: usize,
}

impl Back<'_> {
    /// What the client gets for a message of the server.
    fn answers(&mut self, mut message: Value, shared: &Mutex<Shared>) -> Vec<Value> {
        let Ok(mut shared) = shared.lock() else { return Vec::new() };
        let is_ping = message["method"] == "ping";
        if is_ping && self.fault == "keep-ping" {
            return Vec::new();
        }
        if message["method"] == "notifications/progress" {
            return self.progress(message, &shared.newest);
        }
        if message["result"]["tools"].is_array() && self.fault == "hide" {
            message["result"]["tools"] = json!([]);
        }
        if !message["id"].is_null() && !is_ping {
            let id = message["id"].clone();
            if shared.given_up.contains(&id.to_string()) {
                return Vec::new();
            }
            shared.open.retain(|(open, _)| *open != id);
        }
        let is_content = message["result"]["content"].is_array();
        let mut kept = std::mem::take(&mut self.kept);
        match self.fault {
            "double" if is_content => vec![message.clone(), message],
            "late" => {
                kept.insert(0, message);
                kept
            }
            _ => {
                kept.push(message);
                kept
            }
        }
    }

    fn progress(&mut self, mut message: Value, newest: &Value) -> Vec<Value> {
        self.count += 1;
        match self.fault {
            "drop" if self.count.is_multiple_of(2) => return Vec::new(),
            "rename" => message["params"]["progressToken"] = json!("mine"),
            "mix" => message["params"]["progressToken"] = newest.clone(),
            "round" => {
                let value = message["params"]["progress"].as_f64().unwrap_or_default();
                message["params"]["progress"] = json!(value.floor());
            }
            "buffer" | "late" => {
                self.kept.push(message);
                return Vec::new();
            }
            "swap" => {
                self.kept.push(message);
                if self.kept.len() < 3 {
                    return Vec::new();
                }
                self.kept.reverse();
                return std::mem::take(&mut self.kept);
            }
            _ => {}
        }
        vec![message]
    }
}

/// A tunnel that takes the ids of last events out of requests: nobody gets the rest of a response.
fn forget_event_ids(port: &str, url: &str) -> io::Result<()> {
    let host = url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    for client in listener.incoming() {
        let (client, server) = (client?, TcpStream::connect(&host)?);
        let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
        thread::spawn(move || tunnel(client, server, true));
        thread::spawn(move || tunnel(back_from, back_to, false));
    }
    Ok(())
}

fn tunnel(mut from: TcpStream, mut to: TcpStream, forgets: bool) {
    let mut buffer = [0; 16384];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let piece = &mut buffer[..read];
        let name = b"last-event-id";
        let places: Vec<usize> =
            (0..piece.len()).filter(|at| piece[*at..].len() >= name.len()).collect();
        for at in places {
            if forgets && piece[at..at + name.len()].eq_ignore_ascii_case(name) {
                piece[at..at + name.len()].copy_from_slice(b"lost-event-id");
            }
        }
        if to.write_all(piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
