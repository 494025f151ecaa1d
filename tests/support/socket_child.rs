//! A child process whose standard input and output are connected to the test.

/// Connects to the test, sends its process id, and ends when the test closes the connection.
const PROGRAM: &str = r#"
import os, signal, socket, sys, threading
code = 3
exec(sys.argv[2])
test = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
test.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
test.sendall(b"%d\n" % os.getpid())
def hear():
    while said := os.read(0, 1 << 16):
        test.sendall(said)
    test.shutdown(socket.SHUT_WR)
threading.Thread(target=hear, daemon=True).start()
while told := test.recv(1 << 16):
    sys.stdout.buffer.write(told)
    sys.stdout.buffer.flush()
os._exit(code)
"#;

/// Returns the command of a child that connects to this port. `first` is Python code that runs before, and that may set
/// the exit code `code`.
pub(crate) fn command(port: u16, first: &str) -> Vec<String> {
    ["python3", "-I", "-S", "-c", PROGRAM, &port.to_string(), first].map(str::to_owned).to_vec()
}
