//! Bad messages, events and terminal text: read inside this process, without a socket.

use bytes::Bytes;
use milepost::progress::Policy;
use milepost::protocol::jsonrpc::Message;
use milepost::protocol::sse::{Events, SseFrame};
use milepost::protocol::terminal::Terminal;

use super::{bytes, compare, one_line, rows};
use crate::core::transcripts::Player;

/// An open call with a token, through which the messages of a row come.
const CALL: &str = r#"> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":7}}}"#;

/// Plays the lines of a row (` ;; ` between them) within a call. Returns the output.
fn played(written: &str) -> String {
    let mut policy = Policy::default();
    policy.call.heartbeat.enabled = false;
    let mut player = Player::new(policy);
    player.play(CALL);
    player.take();
    // A client gets its first progress after a short wait.
    player.play("+ 1s");
    for line in written.split(" ;; ") {
        let line = match line.get(..2) {
            Some("> " | "< ") => line.to_owned(),
            _ => format!("< {line}"),
        };
        let (sign, text) = line.split_at(2);
        let text = bytes(text);
        let text = text.iter().map(|byte| match byte {
            b' '..=b'~' if *byte != b'\\' => char::from(*byte).to_string(),
            byte => format!("\\x{byte:02X}"),
        });
        player.play(&format!("{sign}{}", text.collect::<String>()));
    }
    player.play("+ 1s");
    let out = player.take();
    // After any input, the call is answered, and no message follows.
    player.play(r#"< {"jsonrpc":"2.0","id":1,"result":{}}"#);
    let out = out.trim_end().replace('\n', " ;; ");
    if out.is_empty() { "nothing".to_owned() } else { one_line(&out) }
}

#[test]
fn json_rpc_messages() {
    let answers: Vec<String> = rows("json-rpc").iter().map(|row| played(&row.written)).collect();
    compare("json-rpc", &answers);
}

#[test]
fn mcp_messages() {
    let answers: Vec<String> = rows("mcp").iter().map(|row| played(&row.written)).collect();
    compare("mcp", &answers);
}

/// The frames of a stream of events, however it is cut.
fn frames(stream: &[u8], chunk: usize) -> Vec<String> {
    let mut events = Events::new(256);
    let mut out = Vec::new();
    let mut large = 0;
    let mut read = |events: &mut Events, out: &mut Vec<String>| {
        while let Some(frame) = events.next() {
            match frame {
                SseFrame::Event(event) => {
                    let data = event.data().map(|data| String::from_utf8_lossy(&data).into_owned());
                    let name = event.name().map(|name| String::from_utf8_lossy(name).into_owned());
                    let id = event.id().map(|id| String::from_utf8_lossy(id).into_owned());
                    let kind =
                        event.data().map(|data| format!("{:?}", Message::parse(data).kind()));
                    let parts = [
                        name.map(|name| format!("event {name}")),
                        id.map(|id| format!("id {id}")),
                        event.retry().map(|line| String::from_utf8_lossy(&line).into_owned()),
                        data.map(|data| format!("{} {data}", kind.unwrap_or_default())),
                    ];
                    let parts: Vec<String> = parts.into_iter().flatten().collect();
                    // A comment has no meaning, and the second byte of a line end may come late.
                    if !parts.is_empty() {
                        out.push(parts.join(", "));
                    }
                }
                _ => large += 1,
            }
        }
    };
    for chunk in stream.chunks(chunk.max(1)) {
        events.push(Bytes::copy_from_slice(chunk));
        read(&mut events, &mut out);
    }
    let rest = events.finish().unwrap_or_default();
    if large > 0 {
        out.push("too large to be held".to_owned());
    }
    if rest.iter().any(|byte| !b"\r\n".contains(byte)) {
        out.push("cut off".to_owned());
    }
    out
}

#[test]
fn event_streams() {
    let answers: Vec<String> = rows("sse")
        .iter()
        .map(|row| {
            let input = row.input();
            let whole = frames(&input, input.len());
            for chunk in [1, 2, 7] {
                assert_eq!(frames(&input, chunk), whole, "{} in pieces of {chunk}", row.name);
            }
            if whole.is_empty() { "nothing".to_owned() } else { one_line(&whole.join(" ;; ")) }
        })
        .collect();
    compare("sse", &answers);
}

#[test]
fn terminal_text() {
    let answers: Vec<String> = rows("terminal")
        .iter()
        .map(|row| {
            let (mut terminal, mut lines) = (Terminal::default(), Vec::new());
            terminal.feed(&row.input(), &mut |line| lines.push(line.to_owned()));
            terminal.flush(&mut |line| lines.push(line.to_owned()));
            for line in &lines {
                let turns = |sign: char| ('\u{2028}'..='\u{202e}').contains(&sign);
                let is_bad = |sign: char| sign.is_control() || turns(sign);
                assert!(!line.contains(is_bad), "{}: {line:?}", row.name);
            }
            if lines.is_empty() { "nothing".to_owned() } else { one_line(&lines.join(" ;; ")) }
        })
        .collect();
    compare("terminal", &answers);
}
