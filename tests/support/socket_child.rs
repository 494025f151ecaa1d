//! A child whose standard input and output lead to a test.

/// Connects to the test, says its process id there, and ends when the test closes its side.
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

/// The command of a child that connects to this port. `first`: Python that it runs before that, and that may
/// set the `code` with which it ends.
pub(crate) fn command(port: u16, first: &str) -> Vec<String> {
    ["python3", "-I", "-S", "-c", PROGRAM, &port.to_string(), first].map(str::to_owned).to_vec()
}
