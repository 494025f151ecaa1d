//! Tests of a whole process: each test runs itself again in one of its own.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

use milepost::gateway::listen;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// This variable is set in the inner test process.
const INNER: &str = "MILEPOST_TEST_INNER";

fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

/// Starts a test of this module anew, after some lines of shell. `$0` becomes the test.
fn again(name: &str, prepare: &str, stdin: Stdio) -> Child {
    let script = format!("{prepare}; exec \"$0\" --exact \"$1\" --nocapture");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(std::env::current_exe().unwrap());
    let here = module_path!().trim_start_matches("it::");
    shell.arg(format!("{here}::{name}")).env(INNER, "1");
    shell.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn passes(child: Child) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

#[test]
fn without_room_for_a_connection_it_waits() {
    if is_inner() {
        return without_room();
    }
    passes(again("without_room_for_a_connection_it_waits", "ulimit -n 40", Stdio::null()));
}

#[tokio::main(flavor = "current_thread")]
async fn without_room() {
    let site = start(server()).await;
    let stat = File::open("/proc/self/stat").unwrap();
    // The system completes all these connections, none is accepted, and then the queue is full.
    let mut clients = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect(site.address) {
        clients.push(stream);
    }
    // A listener that retries in a loop uses CPU time in every second; a quiet one may still work in the first.
    let mut spent = u64::MAX;
    for _ in 0..20 {
        let before = cpu(&stat);
        sleep(Duration::from_secs(1)).await;
        spent = spent.min(cpu(&stat) - before);
        if spent < 20 {
            break;
        }
    }
    assert!(spent < 20, "{spent} hundredths of a second of each were spent");
    clients.clear();
    // The process has to notice the disconnects before it accepts this request.
    let deadline = Instant::now() + STUCK;
    while !matches!(tokio::spawn(status(site.address, "POST /a")).await, Ok(200)) {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(100)).await;
    }
}

/// The time that this process has used, in hundredths of a second.
fn cpu(mut stat: &File) -> u64 {
    let mut text = String::new();
    stat.rewind().unwrap();
    stat.read_to_string(&mut text).unwrap();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// systemd passes the socket, and is told when the service is ready and when it stops; SIGTERM stops it.
#[test]
fn it_is_a_service_of_systemd() {
    if is_inner() {
        return service();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(STUCK)).unwrap();
    let said = || {
        let mut said = [0; 100];
        let length = systemd.recv(&mut said).unwrap();
        String::from_utf8_lossy(&said[..length]).into_owned()
    };
    let socket = std::net::TcpListener::bind(loopback()).unwrap();
    let address = socket.local_addr().unwrap();
    let prepare = format!(
        "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$ NOTIFY_SOCKET=\"{}\"",
        path.display()
    );
    let child = again("it_is_a_service_of_systemd", &prepare, OwnedFd::from(socket).into());
    assert_eq!(said(), "READY=1\n");
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let request = b"POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n0";
    std::io::Write::write_all(&mut client, request).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(said(), "STOPPING=1\n");
    passes(child);
}

#[tokio::main]
async fn service() {
    let routes = [Route::new("/a".to_owned(), Upstream::Demo)];
    let handler = Arc::new(Talker::default());
    let none = Admin::none();
    let code =
        listen::run(&server(), &none, None, &routes, Via::named(1), handler, |_| async {}).await;
    assert_eq!(code.unwrap(), 0);
}
