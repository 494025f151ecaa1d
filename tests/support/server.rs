//! Example servers over HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::{STUCK, example};

/// An example server that listens on a port of its own. It ends when this is dropped, and when the
/// process of the test is gone.
pub(crate) struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts the example of that name with these options.
    #[track_caller]
    pub(crate) fn start(name: &str, options: &[&str]) -> Self {
        let mut child = Command::new(example(name))
            .args(["--http", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, told) = mpsc::channel();
        // It reads on when nobody listens any more: a server must not wait for that.
        thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)))
        });
        let mut server = Self { child, url: String::new() };
        while server.url.is_empty() {
            let line =
                told.recv_timeout(STUCK).unwrap_or_else(|_| panic!("{name} does not listen"));
            server.url = line.strip_prefix("listening on ").unwrap_or_default().to_owned();
        }
        server
    }

    /// Where it speaks MCP.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }

    /// Its process.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
