//! Tests of log lines about refused requests, for clients on other machines.

use std::io::{self, Write};

use super::*;

/// A log in memory.
#[derive(Clone, Default)]
struct Lines {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.bytes.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Behind `docker -p 7332:7332` the listener has the address of a container, but clients name `localhost`.
#[tokio::test(start_paused = true)]
async fn a_loopback_host_at_another_address_is_told_of_once_a_minute_with_the_cure() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _log = tracing::subscriber::set_default(log.finish());
    let ask = async |host: &str, allowed: &[&str]| {
        let allowed_hosts = allowed.iter().map(|name| (*name).to_owned()).collect();
        let server = Server { allowed_hosts, ..Server::default() };
        let request = format!("GET /a HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        speak_at("192.0.2.9:7332", server, &[request.as_bytes()]).await.statuses()
    };
    assert_eq!(ask("mcp.example", &["other.example"]).await, [403]);
    let told = || {
        let log = String::from_utf8(lines.bytes.lock().unwrap().clone()).unwrap();
        let told = |line: &&str| line.contains("clients name a loopback host");
        log.lines().filter(told).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told(), [""; 0], "the host is no loopback name");
    for host in ["localhost:7332", "127.0.0.1", "[::1]:7332"] {
        assert_eq!(ask(host, &["other.example"]).await, [403], "{host}");
    }
    let lines = told();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["WARN", "host=\"localhost\"", "`allowed_hosts` of [server]"] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    assert_eq!(ask("localhost:7332", &["localhost"]).await, [200], "the cure");
}
