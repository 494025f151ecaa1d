//! A forward proxy that connects every name to one server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::STUCK;

/// Listens on a separate port, and notes the head of the first request of each connection.
pub(crate) struct ForwardProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

/// What the proxy does with a request.
#[derive(Clone, Copy)]
pub(crate) enum Asks {
    /// Forwards every request.
    Nothing,
    /// Forwards requests with this value of `Proxy-Authorization`; others get 407.
    For(&'static str),
    /// Answers every request with this status.
    Refuses(&'static str),
}

impl ForwardProxy {
    /// Connects every name to the server at `url`, whatever the scheme.
    pub(crate) fn before(url: &str, asks: Asks) -> Self {
        let (_, rest) = url.split_once("://").unwrap();
        let server: SocketAddr = rest.split('/').next().unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let noted = Arc::clone(&noted);
                thread::spawn(move || serve(stream, server, asks, &noted));
            }
        });
        Self { address, heads }
    }

    /// Returns the URL of the proxy, with `user` before the host, such as `alice:secret@`.
    pub(crate) fn url(&self, user: &str) -> String {
        format!("http://{user}{}", self.address)
    }

    /// Returns host and port of the proxy.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Takes the heads noted since the last call.
    pub(crate) fn heads(&self) -> Vec<String> {
        std::mem::take(&mut self.heads.lock().unwrap())
    }
}

fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    asks: Asks,
    noted: &Mutex<Vec<String>>,
) -> Option<()> {
    client.set_read_timeout(Some(STUCK)).ok()?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.extend_from_slice(&byte);
    }
    let text = String::from_utf8(head.clone()).unwrap();
    noted.lock().unwrap().push(text.clone());
    let refusal = match asks {
        Asks::Nothing => None,
        Asks::For(value) => {
            let line = format!("\r\nproxy-authorization: {value}\r\n");
            (!text.contains(&line)).then_some("407 Proxy Authentication Required")
        }
        Asks::Refuses(status) => Some(status),
    };
    if let Some(status) = refusal {
        let text = format!(
            "HTTP/1.1 {status}\r\nproxy-authenticate: Basic realm=\"x\"\r\ncontent-length: 2\r\n\r\nno"
        );
        client.write_all(text.as_bytes()).ok()?;
        // Read the rest of the request, because unread bytes would reset the connection before the client has read the
        // answer.
        let _ = client.shutdown(Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
        return None;
    }
    let mut server = TcpStream::connect(server).ok()?;
    if text.starts_with("CONNECT ") {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    } else {
        // The head is forwarded unchanged, because servers also accept a whole URL as the target.
        server.write_all(&head).ok()?;
    }
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    from.set_read_timeout(None).ok()?;
    let upwards = thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    upwards.join().ok()
}
