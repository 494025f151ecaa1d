//! Measures `milepost wrap` from end to end, beside the bare server and beside a plain byte pipe:
//! `cargo bench --bench wrap`.
//!
//! Reports the CPU time of the process in the middle (from `/proc/PID/task/*/schedstat`) per answer, and the round trip
//! as the client sees it. This program is also the server and the pipe.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("server") => server(),
        Some("pipe") => pipe(&args[2..]),
        _ => bench(&args[0]),
    }
}

/// Answers each request as its arguments say: `flood N` after N notifications, `big N` with N bytes of text, and
/// otherwise with a short answer.
fn server() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let field = |name: &str| {
            let after = line.split(&format!("\"{name}\":")).nth(1)?;
            after.split([',', '}']).next()?.parse::<usize>().ok()
        };
        let id = field("id").unwrap_or(0);
        let mut all = Vec::new();
        for step in 1..=field("flood").unwrap_or(0) {
            let text = "building the index of the documents in the folder that was named";
            writeln!(
                all,
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{step},"total":1000000,"message":"{text}"}}}}"#
            )?;
        }
        let text = "a line of text that ends here and is of usual length\\n"
            .repeat(field("big").unwrap_or(40) / 54 + 1);
        writeln!(
            all,
            r#"{{"result":{{"content":[{{"type":"text","text":"{text}"}}]}},"jsonrpc":"2.0","id":{id}}}"#
        )?;
        out.write_all(&all)?;
        out.flush()?;
    }
    Ok(())
}

/// Copies bytes in both directions and does nothing else, which is the least that any process in the middle has to do.
fn pipe(command: &[String]) -> io::Result<()> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut into = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut from = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let up = thread::spawn(move || shovel(&mut io::stdin().lock(), &mut into));
    shovel(&mut from, &mut io::stdout().lock())?;
    let _ = up.join();
    child.wait()?;
    Ok(())
}

fn shovel(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read])?;
        to.flush()?;
    }
}

/// A process that is used through its standard streams.
struct Peer {
    child: Child,
    into: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(command: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(command[0])
            .args(&command[1..])
            // A separate state directory, so that the bench does not use the user's own.
            .env("MILEPOST_STATE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let into = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let from = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, into, from: BufReader::with_capacity(1 << 20, from) })
    }

    /// Sends a request, and reads up to its answer. Returns how many lines were read.
    fn ask(&mut self, id: usize, what: &str) -> io::Result<usize> {
        writeln!(
            self.into,
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{{what}}},"_meta":{{"progressToken":{id}}}}}}}"#
        )?;
        let mut line = Vec::new();
        let mut lines = 0;
        loop {
            line.clear();
            if self.from.read_until(b'\n', &mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            lines += 1;
            if line.starts_with(b"{\"result\"") {
                return Ok(lines);
            }
        }
    }

    /// Returns the CPU time that all threads of the process have used so far.
    fn cpu(&self) -> io::Result<Duration> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total += text.split(' ').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(total))
    }
}

struct Row {
    cpu_us: f64,
    median_us: f64,
    lines: f64,
}

/// Sends `count` requests. Returns what one answer cost the started process.
fn measure(command: &[&str], count: usize, what: &str) -> io::Result<Row> {
    let mut peer = Peer::start(command)?;
    // A client that is known to need no pacing, so that only the cost is measured.
    writeln!(
        peer.into,
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{}},"clientInfo":{{"name":"rmcp","version":"1"}}}}}}"#
    )?;
    peer.from.read_line(&mut String::new())?;
    for id in 1..=count / 10 {
        peer.ask(id, what)?;
    }
    let before = peer.cpu()?;
    let mut times = Vec::with_capacity(count);
    let mut lines = 0;
    for id in 0..count {
        let start = Instant::now();
        lines += peer.ask(count + id, what)?;
        times.push(start.elapsed());
    }
    let cpu = peer.cpu()? - before;
    times.sort();
    drop(peer.into);
    peer.child.wait()?;
    Ok(Row {
        cpu_us: cpu.as_secs_f64() * 1e6 / count as f64,
        median_us: times[count / 2].as_secs_f64() * 1e6,
        lines: lines as f64 / count as f64,
    })
}

fn bench(own: &str) -> io::Result<()> {
    let milepost = env!("CARGO_BIN_EXE_milepost");
    let mut out = io::stdout().lock();
    writeln!(out, "| load | process | CPU per answer | to the pipe's | round trip | lines |")?;
    writeln!(out, "|---|---|--:|--:|--:|--:|")?;
    let loads = [
        ("small answer", 20_000, "\"n\":1"),
        ("2 KB answer", 10_000, "\"big\":2000"),
        ("1 MB answer", 400, "\"big\":1000000"),
        ("1,000 notifications", 200, "\"flood\":1000"),
    ];
    for (name, count, what) in loads {
        let alone = measure(&[own, "server"], count, what)?;
        let pipe = measure(&[own, "pipe", own, "server"], count, what)?;
        let quiet = ["--log-level", "error"];
        let wrap = [&[milepost, "wrap"], &quiet[..], &["--", own, "server"]].concat();
        let wrap = measure(&wrap, count, what)?;
        for (process, row) in [("bare server", &alone), ("byte pipe", &pipe), ("wrap", &wrap)] {
            let (cpu, ratio) = if process == "bare server" {
                ("".to_owned(), "".to_owned())
            } else {
                (format!("{:.1} µs", row.cpu_us), format!("{:.2}", row.cpu_us / pipe.cpu_us))
            };
            let (median, lines) = (row.median_us, row.lines);
            writeln!(
                out,
                "| {name} | {process} | {cpu} | {ratio} | {median:.0} µs | {lines:.0} |"
            )?;
        }
    }
    Ok(())
}
