//! The engine embedded in a program of its own: stands between a client on standard input and a server that it starts.
//!
//!     cargo run --example embed-stdio -- --policy examples/policy.toml python3 server.py

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use milepost_core::conversation::{Conversation, ConversationEvent, Output};
use milepost_core::progress::Policy;

/// Something that a thread has read. No bytes: the side has ended.
enum Arrival {
    Client(Vec<u8>),
    Server(Vec<u8>),
}

fn main() -> io::Result<()> {
    let mut words = std::env::args_os().skip(1).peekable();
    let mut policy = Policy::default();
    if words.next_if(|word| word == "--policy").is_some() {
        let text = std::fs::read_to_string(words.next().ok_or_else(usage)?)?;
        policy = Policy::from_toml(&text).map_err(|faults| io::Error::other(faults.to_string()))?;
    }
    let mut server = Command::new(words.next().ok_or_else(usage)?)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (sender, arrivals) = channel();
    if let Some(output) = server.stdout.take() {
        read(output, sender.clone(), Arrival::Server);
    }
    read(io::stdin(), sender, Arrival::Client);
    mend(policy, &arrivals, &mut server)?;
    server.wait().map(drop)
}

fn usage() -> io::Error {
    let words = "usage: embed-stdio [--policy FILE] COMMAND [ARG]...";
    io::Error::new(io::ErrorKind::InvalidInput, words)
}

/// Reads one side to its end.
fn read(mut from: impl Read + Send + 'static, to: Sender<Arrival>, side: fn(Vec<u8>) -> Arrival) {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let bytes = from.read(&mut buffer).unwrap_or(0);
            if to.send(side(buffer[..bytes].to_vec())).is_err() || bytes == 0 {
                return;
            }
        }
    });
}

/// Forwards everything between the client and the server, progress mended, until the server has ended.
fn mend(policy: Policy, arrivals: &Receiver<Arrival>, server: &mut Child) -> io::Result<()> {
    let mut mended = Conversation::new(policy);
    let (mut client, mut to_server) = (io::stdout(), server.stdin.take());
    let (mut client_has_ended, mut server_has_ended) = (false, false);
    loop {
        match mended.poll() {
            Output::ToClient(_, bytes) => {
                client.write_all(&bytes)?;
                client.flush()?;
            }
            Output::ToServer(_, bytes) => {
                // A server that has ended takes nothing more; its output tells so.
                let _ = to_server.as_mut().map(|server| server.write_all(&bytes));
            }
            Output::Event(ConversationEvent::Noise(text)) => io::stderr().write_all(&text)?,
            Output::Event(_) => {}
            Output::Timeout(_) if server_has_ended => return Ok(()),
            Output::Timeout(at) => {
                if client_has_ended {
                    to_server = None;
                }
                let left =
                    at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
                let arrival = arrivals.recv_timeout(left);
                let now = Instant::now();
                match arrival {
                    Ok(Arrival::Client(bytes)) if bytes.is_empty() => {
                        client_has_ended = true;
                        mended.client_ended(now);
                    }
                    Ok(Arrival::Client(bytes)) => mended.client(now, &bytes),
                    Ok(Arrival::Server(bytes)) if bytes.is_empty() => {
                        server_has_ended = true;
                        mended.server_ended(now, "the server has exited");
                    }
                    Ok(Arrival::Server(bytes)) => mended.server(now, &bytes),
                    Err(RecvTimeoutError::Timeout) => mended.tick(now),
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
        }
    }
}
