//! `milepost serve` as a process: real sockets, real signals, and its log.

mod admin;
mod admin_token;
mod byte_exact;
mod cached_starts;
mod client_certificates;
mod client_limits;
#[cfg(target_env = "gnu")]
pub(crate) mod crowd;
#[cfg(target_os = "linux")]
mod cut_answers;
mod descriptors;
mod fleet;
mod forward_proxies;
mod forwarded_prefixes;
mod http2_upstream;
mod http_client;
pub(crate) mod idle_connections;
mod kept_answers;
mod leaving_clients;
pub(crate) mod legacy_server;
mod live_calls;
mod notices;
mod one_way;
mod principal_doors;
mod principals;
mod private_files;
pub(crate) mod proxy;
mod refusals;
mod reload;
mod same_ids;
pub(crate) mod scripted_server;
mod secrets_in_logs;
mod server_faults;
mod sigterm;
mod startup;
mod stdio_servers;
pub(crate) mod tls_and_http2;
mod token_files;

use std::io::{Read, Write};
use std::net::TcpStream;

use proxy::Proxy;

use crate::http::serve::scripted_server::Upstream;
use crate::support::STUCK;
use crate::support::exchange::Exchange;
use crate::support::messages::{call, own_error, result};

/// The headers that clients of Streamable HTTP send with every POST.
const POST: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

/// A result, as an event.
fn result_event(id: &str) -> String {
    format!("data: {}\n\n", result(id))
}

/// Progress as a legacy server reports it, as an event.
fn legacy_progress(id: &str, words: &str) -> String {
    format!(
        "data: {}\n\n",
        serde_json::json!({"jsonrpc": "2.0", "method": "tools/progress", "params": {
            "id": serde_json::from_str::<serde_json::Value>(id).unwrap(),
            "content": [{"type": "text", "text": format!(r#"{{"message":"{words}"}}"#)}],
            "isFinal": false,
        }})
    )
}

/// Repeats the request until the limit allows it: the bytes of a request are released a moment after its client has the
/// answer. Returns the request as its client and as the server sees it.
fn once_there_is_room(
    upstream: &Upstream,
    ask: impl Fn() -> Exchange,
) -> (Exchange, scripted_server::Asked) {
    let (mut client, mut server) = (ask(), None);
    crate::support::until("there is room", || {
        server = upstream.try_asked();
        // Without a connection to the server, this is a refusal.
        if server.is_none() && !client.is_quiet(std::time::Duration::from_millis(5)) {
            client = ask();
        }
        server.is_some()
    });
    (client, server.unwrap())
}

/// The JSON of an event or of a body.
#[track_caller]
fn json(text: &str) -> serde_json::Value {
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(text);
    serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Posts to the only route.
fn post(proxy: &Proxy, body: &str) -> Exchange {
    Exchange::send(proxy.address(), "POST", "/a", &POST, body)
}

/// Sends a text on a connection of its own and reads the whole response.
fn say(address: &str, text: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(STUCK)).unwrap();
    stream.write_all(text.as_ref()).unwrap();
    let mut heard = Vec::new();
    // A reset after the last byte also counts as an end.
    match stream.read_to_end(&mut heard) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("it does not end: {}", String::from_utf8_lossy(&heard))
        }
        _ => String::from_utf8(heard).unwrap(),
    }
}
