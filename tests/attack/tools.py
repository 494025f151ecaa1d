"""The program under attack, its servers, and requests as raw bytes."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

PROGRAM = ""
ATTACKS = {}
RUNNING = []
FOLDERS = []
# Members that each message of 2026-07-28 has.
MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
          "io.modelcontextprotocol/clientCapabilities": {}}
# A server that answers everything but calls of `slow`, and writes what it was asked to standard error.
SERVER = r'''
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    name = said.get("params", {}).get("name") if isinstance(said.get("params"), dict) else None
    sys.stderr.write("asked " + line)
    sys.stderr.flush()
    if name == "slow" or "id" not in said or "method" not in said:
        continue
    result = {"protocolVersion": said.get("params", {}).get("protocolVersion", "2025-06-18"), "resultType": "complete",
              "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}, "tools": [],
              "content": [{"type": "text", "text": "for " + str(said["id"])}]}
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
'''
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}})


def attack(function):
    """An attack: it returns its figure, and fails where Milepost does not hold."""
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


def folder():
    made = pathlib.Path(tempfile.mkdtemp(prefix="milepost-attack-"))
    FOLDERS.append(made)
    return made


def end_all():
    """Ends what an attack has started."""
    for process in RUNNING:
        if process.poll() is None:
            process.kill()
        process.wait()
    RUNNING.clear()
    for made in FOLDERS:
        shutil.rmtree(made, ignore_errors=True)
    FOLDERS.clear()


def free_ports(count):
    """Ports that nobody listens on, each another."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def python(text, *args):
    """The command of a stdio server, for a route file."""
    return json.dumps(["python3", "-c", text, *args])


class Serve:
    """`milepost serve` with a route file of its own."""

    def __init__(self, routes, server="", admin="", top="", options=(), environment=None, state=None):
        self.folder = folder()
        self.port, self.admin = free_ports(2)
        state = state or self.folder / "state"
        self.file = self.folder / "proxy.toml"
        self.file.write_text(
            f'{top}\n[server]\nlisten = "127.0.0.1:{self.port}"\n{server}\n'
            f'[admin]\nlisten = "127.0.0.1:{self.admin}"\n{admin}\n[state]\ndir = "{state}"\n{routes}\n'.replace("PORT", str(self.port)))
        os.chmod(self.file, 0o600)
        self.log_file = self.folder / "log"
        known = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        with open(self.log_file, "w") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve", str(self.file), *options], stderr=log, stdout=log, stdin=subprocess.DEVNULL,
                env={**known, **(environment or {})})
        RUNNING.append(self.process)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                socket.create_connection(("127.0.0.1", self.admin)).close()
                break
            except OSError:
                assert self.process.poll() is None, self.log()
                time.sleep(0.05)

    def log(self):
        return self.log_file.read_text(errors="replace")

    def token(self):
        return (self.folder / "state" / "admin-token").read_text().strip()

    def cpu(self):
        """Seconds of CPU so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self):
        """Megabytes in memory."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def children(self):
        listed = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = set()
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            found |= set((task / "children").read_text().split())
        return found | set(listed.read_text().split())

    def open(self, port=None):
        made = socket.create_connection(("127.0.0.1", port or self.port))
        made.settimeout(20)
        return made

    def ask(self, text, port=None, wait=20):
        """Sends raw bytes; the status (0: none) and everything that came back within `wait` seconds."""
        data = text if isinstance(text, bytes) else text.encode()
        with self.open(port) as made:
            made.settimeout(wait)
            try:
                made.sendall(data)
            except OSError:
                pass
            return answer_of(made)

    def metric(self, name, part=""):
        text = self.ask(get("/metrics", self.admin), self.admin)[1].decode(errors="replace")
        lines = [line for line in text.splitlines() if line.startswith(name) and part in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def is_served(self, path="/a"):
        """Whether another client is answered, and in which time."""
        began = time.monotonic()
        status, _ = self.ask(post(INITIALIZE, path))
        took = time.monotonic() - began
        assert status == 200, f"another client got {status}"
        return took


def answer_of(made):
    """Reads a whole answer, or until the other side closes or is silent."""
    got = b""
    try:
        while True:
            head, end, body = got.partition(b"\r\n\r\n")
            lower = head.lower()
            if end and b"content-length:" in lower:
                length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
                if len(body) >= length:
                    break
            if end and b"transfer-encoding: chunked" in lower and body.endswith(b"0\r\n\r\n"):
                break
            more = made.recv(1 << 16)
            if not more:
                break
            got += more
    except OSError:
        pass
    return status_of(got), got


def status_of(got):
    parts = got.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[0].startswith(b"HTTP/") and parts[1].isdigit() else 0


def post(body, path="/a", headers=(), host="127.0.0.1", close=True):
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json",
             "Accept: application/json, text/event-stream", f"Content-Length: {len(body.encode())}", *headers]
    return "\r\n".join(lines + (["Connection: close"] if close else [])) + "\r\n\r\n" + body


def get(path, port, headers=(), method="GET"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "Connection: close"]) + "\r\n\r\n"


def call(number, name="work", token=None, session=None, headers=(), path="/a"):
    """A call of a session."""
    params = {"name": name, "arguments": {}, **({"_meta": {"progressToken": token}} if token is not None else {})}
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    return post(body, path, [*headers, *([f"Mcp-Session-Id: {session}"] if session else [])])


def modern(body, name="work", headers=(), path="/a"):
    """A call of 2026-07-28, with the headers that repeat its members."""
    names = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", f"Mcp-Name: {name}", *headers]
    return post(body if isinstance(body, str) else json.dumps(body), path, names)


def begin(serve, path="/a", headers=()):
    """Begins a session; its id."""
    status, got = serve.ask(post(INITIALIZE, path, headers))
    assert status == 200, got[:300]
    for line in got.split(b"\r\n"):
        if line.lower().startswith(b"mcp-session-id:"):
            return line.split(b":", 1)[1].strip().decode()
    raise AssertionError(f"no session: {got[:200]}")


class Upstream:
    """A server over HTTP: `handle(connection, head, body)` for each request; it keeps all that was asked."""

    def __init__(self, handle=None):
        self.handle, self.asked, self.lock = handle or answer_json, [], threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                made, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(made,), daemon=True).start()

    def serve(self, made):
        reader = made.makefile("rb")
        try:
            while True:
                head = read_head(reader)
                if not head:
                    return
                body = read_body(head, reader)
                with self.lock:
                    self.asked.append((head, body))
                self.handle(made, head, body)
        except (OSError, ValueError):
            pass
        finally:
            made.close()

    def text(self):
        with self.lock:
            return b"\n".join(head + body for head, body in self.asked)


def read_head(reader):
    lines = []
    for line in reader:
        lines.append(line)
        if line in (b"\r\n", b"\n"):
            break
    return b"".join(lines)


def read_body(head, reader):
    """The body as a lenient server reads it: chunks go before a length, and lines may end in one byte."""
    lower = head.lower()
    if b"chunked" in lower:
        body = b""
        while size := int(reader.readline().split(b";")[0].strip() or b"0", 16):
            body += reader.read(size)
            reader.readline()
        while reader.readline() not in (b"\r\n", b"\n", b""):
            pass
        return body
    if b"content-length:" in lower:
        return reader.read(int(lower.split(b"content-length:")[1].split(b"\r\n")[0]))
    return b""


def answer_json(made, head, body):
    """Answers as a server of MCP."""
    try:
        said = json.loads(body)
    except ValueError:
        said = {}
    said = said[0] if isinstance(said, list) and said else said
    if not isinstance(said, dict) or "id" not in said:
        made.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        return
    result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}, "content": []}
    text = json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}).encode()
    made.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))


def until(what, holds, wait=20):
    """Waits until something holds."""
    end = time.monotonic() + wait
    while not holds():
        assert time.monotonic() < end, f"not {what} after {wait} s"
        time.sleep(0.05)


def route(upstream, more="", path="/a"):
    return f'[[route]]\npath = "{path}"\nupstream.url = "{upstream.url}"\n{more}\n'


def stdio(text=SERVER, more="", path="/a", args=()):
    return f'[[route]]\npath = "{path}"\nupstream.command = {python(text, *args)}\n{more}\n'


def kill(pid):
    os.kill(pid, signal.SIGKILL)
