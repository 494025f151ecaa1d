//! A client without any SDK: a process with its three streams, read and written with deadlines.

use std::io::{BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{FORGETFUL, STUCK, messages, milepost, until};

/// Returns the children of a process, of all its threads.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| read(format!("{}/children", task.path().display())));
    children.collect::<String>().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Returns the servers of a Milepost process: its children without the watchdog, and without children that are still
/// starting. A starting child looks like its parent at first, and then has no command line for a moment.
pub(crate) fn servers_of(milepost: u32) -> Vec<u32> {
    let command =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let own = command(milepost);
    let mut children = children_of(milepost);
    children.retain(|pid| {
        let command = command(*pid);
        let is_hidden = command.contains("--watch-parent") || command.contains("--start-server");
        !is_hidden && !command.is_empty() && command != own
    });
    children
}

/// `milepost wrap` with a server. The test is its client.
pub(crate) struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    lines: Option<Receiver<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_ended: Receiver<()>,
}

impl Session {
    /// Starts `wrap` with these options and this server.
    pub(crate) fn wrap(options: &[&str], server: &[&str]) -> Self {
        let mut command = milepost();
        command.arg("wrap").args(options).arg("--").args(server);
        Self::start(&mut command)
    }

    /// Starts `wrap` with a server that runs the shell script `script`.
    pub(crate) fn sh(script: &str) -> Self {
        Self::wrap(&[], &["sh", "-c", script])
    }

    /// Starts any program, without stored state ([`FORGETFUL`]).
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_as_it_is(command.env(FORGETFUL.0, FORGETFUL.1))
    }

    /// Starts any program, with the state directory that it is configured with.
    pub(crate) fn start_as_it_is(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.env_remove("MILEPOST_LOG").spawn().unwrap();
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let (ended, stderr_ended) = mpsc::channel();
        let (mut pipe, text) = (child.stderr.take().unwrap(), Arc::clone(&stderr));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                text.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
            let _ = ended.send(());
        });
        Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().map(BufReader::new),
            lines: None,
            child,
            stderr,
            stderr_ended,
        }
    }

    /// Returns the process id of Milepost.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process id of the server, which is Milepost's child.
    pub(crate) fn server_pid(&self) -> u32 {
        let mut found = None;
        until("the server runs", || {
            found = servers_of(self.pid()).first().copied();
            found.is_some()
        });
        found.unwrap()
    }

    /// Returns the maximum memory that Milepost has used so far, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Writes text to Milepost unchanged.
    pub(crate) fn say(&mut self, text: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_ref()).and_then(|()| stdin.flush()).unwrap();
    }

    /// Writes a line to Milepost.
    pub(crate) fn tell(&mut self, line: &str) {
        self.say(format!("{line}\n"));
    }

    /// Calls a tool, with or without a token.
    pub(crate) fn call(&mut self, id: &str, token: Option<&str>, tool: &str, arguments: &str) {
        let call = messages::call_of(tool, id, token.unwrap_or_default());
        self.tell(&call.replace(r#""arguments":{}"#, &format!(r#""arguments":{arguments}"#)));
    }

    /// Closes Milepost's standard input.
    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Takes the writing end of Milepost's standard input, for another thread.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().unwrap()
    }

    /// Takes the reading end of Milepost's standard output, for a test that reads it itself.
    pub(crate) fn take_stdout(&mut self) -> BufReader<ChildStdout> {
        self.stdout.take().unwrap()
    }

    /// Returns the next line with its line ending; `None` at the end.
    #[track_caller]
    pub(crate) fn line_bytes(&mut self) -> Option<Vec<u8>> {
        let stdout = &mut self.stdout;
        let lines = self.lines.get_or_insert_with(|| listen(stdout.take().unwrap()));
        match lines.recv_timeout(STUCK) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("nothing comes; standard error: {}", self.stderr())
            }
        }
    }

    /// Returns the next line without its line ending.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let line = self.line_bytes();
        let line = line.unwrap_or_else(|| panic!("the end; standard error: {}", self.stderr()));
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Returns all lines up to the first that contains `text`.
    #[track_caller]
    pub(crate) fn lines_until(&mut self, text: &str) -> Vec<String> {
        let mut lines = vec![self.line()];
        while !lines.last().unwrap().contains(text) {
            lines.push(self.line());
        }
        lines
    }

    /// Returns the text that was written to standard error so far.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Sends a signal to Milepost.
    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.pid());
    }

    /// Closes the input, and waits for the end. Returns the remaining output, the exit code, and all of standard error.
    #[track_caller]
    pub(crate) fn finish(mut self) -> (String, Option<i32>, String) {
        self.hang_up();
        self.ended()
    }

    /// Waits for Milepost to end by itself. Returns the same as [`Self::finish`].
    #[track_caller]
    pub(crate) fn ended(&mut self) -> (String, Option<i32>, String) {
        let mut rest = Vec::new();
        if self.lines.is_some() || self.stdout.is_some() {
            while let Some(line) = self.line_bytes() {
                rest.extend(line);
            }
        }
        let status = self.exit();
        let _ = self.stderr_ended.recv_timeout(STUCK);
        (String::from_utf8_lossy(&rest).into_owned(), status.code(), self.stderr())
    }

    /// Waits for Milepost's end.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let status = super::wait(&mut self.child, STUCK);
        status.unwrap_or_else(|| panic!("it does not end; standard error: {}", self.stderr()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Close the input, so that Milepost ends its server even if the test has failed.
        self.stdin = None;
        if let Ok(None) = self.child.try_wait() {
            signal("TERM", self.pid());
            let deadline = Instant::now() + Duration::from_secs(8);
            while let Ok(None) = self.child.try_wait()
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(10));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.unwrap().success(), "kill -s {name} {pid}");
}

fn listen(stdout: BufReader<ChildStdout>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || read_lines(stdout, &sender));
    receiver
}

fn read_lines(mut stdout: impl std::io::BufRead, sender: &Sender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match stdout.read_until(b'\n', &mut line) {
            Ok(1..) if sender.send(line).is_ok() => {}
            _ => break,
        }
    }
}
