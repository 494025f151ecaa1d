//! Example servers over HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::{STUCK, example};

/// An example server on a separate port. It ends when this value is dropped, and when the test process ends.
pub(crate) struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts the example with this name and these options.
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
        // The thread reads to the end, even if nobody receives the lines, because a full pipe would block the server.
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

    /// Returns the URL of the MCP endpoint.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns host and port of the server.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }

    /// Returns the process of the server.
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
