"""A strict client on the standard library, with a habit that the SDKs do not have.

    client.py --habit same-ids|fractions|leaves [option]... --url URL | -- CMD [ARG]...

`same-ids` sends every call over HTTP with the id 1 and makes all calls at once; on stdio, where only the id tells the
answers apart, it makes one call after the other. `fractions` uses ids and tokens such as 1.5. `leaves` sends
notifications over HTTP, each on a connection that it closes after the last byte, before it makes its calls.
The options and the report are those of ../README.md.
"""

import http.client
import json
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

MAX_LISTED = 20
LEAVING = 20
EVENTS = "text/event-stream"


class Report:
    def __init__(self, habit):
        self.lock = threading.Lock()
        self.data = {
            "client": habit, "connected": False, "server_version": None, "protocol": None, "calls": [],
            "stray_progress": 0, "notifications": {}, "errors": [], "error_count": 0, "http_errors": [], "http_error_count": 0,
        }

    def fault(self, text, kind="error"):
        with self.lock:
            self.data[f"{kind}_count"] += 1
            if len(self.data[f"{kind}s"]) < MAX_LISTED:
                self.data[f"{kind}s"].append(str(text)[:200])


class Call:
    """One request: what arrives for it, until its answer."""

    def __init__(self, name, tool=None):
        self.name, self.began, self.done = name, time.monotonic(), threading.Event()
        self.answer = None
        self.entry = {
            "tool": tool, "progress": [], "outcome": "timeout", "is_error": False,
            "error": "still running at the deadline", "code": None, "result": None, "ms": None,
        }

    def elapsed(self):
        return round((time.monotonic() - self.began) * 1000)

    def end(self, message):
        self.answer, self.entry["ms"] = message, self.elapsed()
        if "result" in message:
            result = message["result"]
            self.entry.update(outcome="result", is_error=isinstance(result, dict) and result.get("isError") is True, error=None, result=result)
        else:
            error = message["error"]
            self.entry.update(outcome="error", error=error.get("message"), code=error.get("code"))
        self.done.set()


def same(left, right):
    return type(left) is type(right) and left == right


class Client:
    """What both transports share: reads messages as strictly as an SDK."""

    def __init__(self, report, habit):
        self.report, self.habit, self.open, self.count = report, habit, [], 0

    def next_name(self):
        self.count += 1
        if self.habit == "fractions":
            return self.count + 0.5
        return 1 if self.habit == "same-ids" else self.count

    def take(self, text, own=None):
        """Reads a message. `own` is the call on whose response the message came, if it came on one."""
        try:
            message = json.loads(text.decode() if isinstance(text, bytes) else text, parse_constant=lambda word: 1 / 0)
        except (ValueError, ZeroDivisionError) as error:
            return self.report.fault(f"unreadable: {error}: {text[:80]!r}")
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return self.report.fault(f"no message: {text[:80]!r}")
        if "method" in message:
            if not isinstance(message["method"], str) or "result" in message:
                return self.report.fault(f"neither a request nor an answer: {text[:80]!r}")
            return self.hear(message, own)
        if ("result" in message) == ("error" in message):
            return self.report.fault(f"no answer: {text[:80]!r}")
        call = self.find(message.get("id"), own)
        if call is None:
            return self.report.fault(f"an answer to no request: {text[:80]!r}")
        self.open.remove(call)
        call.end(message)

    def find(self, name, own):
        if own in self.open and same(own.name, name):
            return own
        return next((call for call in self.open if same(call.name, name)), None)

    def hear(self, message, own):
        method, params = message["method"], message.get("params") or {}
        if method != "notifications/progress":
            counts = self.report.data["notifications"]
            counts[method] = counts.get(method, 0) + 1
            return
        call = self.find(params.get("progressToken"), own)
        value, total, words = params.get("progress"), params.get("total"), params.get("message")
        if call is None or not isinstance(value, (int, float)) or "total" in params and not isinstance(total, (int, float)):
            with self.report.lock:
                self.report.data["stray_progress"] += 1
            return
        if total is not None and total < value:
            # A bar of "3 of 0" is no report that a person can use.
            return
        call.entry["progress"].append([value, total, words, call.elapsed()])

    def request(self, call, method, params):
        return json.dumps({"jsonrpc": "2.0", "id": call.name, "method": method, "params": params})

    def begin(self, options):
        call = Call(self.next_name())
        params = {"protocolVersion": options.protocol or "2025-11-25", "capabilities": {}, "clientInfo": {"name": f"milepost-{self.habit}", "version": "1"}}
        self.send(call, self.request(call, "initialize", params))
        if not call.done.wait(15) or "result" not in call.answer:
            raise OSError(f"initialize: {call.entry['error']}")
        self.report.data.update(connected=True, protocol=call.answer["result"].get("protocolVersion"), server_version=call.answer["result"].get("serverInfo"))
        self.say(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def call(self, tool, args, timeout):
        call = Call(self.next_name(), tool)
        self.report.data["calls"].append(call.entry)
        params = {"name": tool, "arguments": args, "_meta": {"progressToken": call.name}}
        self.send(call, self.request(call, "tools/call", params))
        call.done.wait(timeout)


class Stdio(Client):
    def __init__(self, report, habit, command):
        super().__init__(report, habit)
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            if line.strip():
                self.take(line)

    def say(self, text):
        self.child.stdin.write(text.encode() + b"\n")
        self.child.stdin.flush()

    def send(self, call, text):
        self.open.append(call)
        self.say(text)

    def leave(self):
        for _ in range(LEAVING):
            self.say(json.dumps({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}))

    def close(self):
        self.child.stdin.close()
        try:
            self.child.wait(8)
        except subprocess.TimeoutExpired:
            self.report.fault("the server did not close and was killed")
            self.child.kill()


class Http(Client):
    def __init__(self, report, habit, url):
        super().__init__(report, habit)
        self.url, self.session = urlsplit(url), None

    def headers(self):
        own = {"Accept": f"application/json, {EVENTS}", "Content-Type": "application/json"}
        if self.session:
            own |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.report.data["protocol"] or "2025-11-25"}
        return own

    def connection(self):
        return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)

    def post(self, text, call=None):
        connection = self.connection()
        try:
            connection.request("POST", self.url.path, text.encode(), self.headers())
            response = connection.getresponse()
            self.session = self.session or response.getheader("mcp-session-id")
            if response.status >= 400:
                self.report.fault(f"POST {response.status}", "http_error")
            # As the SDKs do: 202 has no body that anybody reads.
            if response.status != 202:
                self.body(response, call)
        except OSError as error:
            self.report.fault(f"POST {error}", "http_error")
        finally:
            connection.close()

    def body(self, response, call):
        if not (response.getheader("content-type") or "").startswith(EVENTS):
            text = response.read()
            if text.strip():
                self.take(text, call)
            return
        data, name = [], "message"
        for line in response:
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                name = line[6:].strip().decode()
            elif not line:
                if b"".join(data) and name == "message":
                    self.take(b"\n".join(data), call)
                data, name = [], "message"

    def listen(self):
        def read():
            connection = self.connection()
            try:
                connection.request("GET", self.url.path, headers=self.headers() | {"Accept": EVENTS})
                response = connection.getresponse()
                opened.set()
                if response.status == 200:
                    self.body(response, None)
            except (OSError, http.client.HTTPException):
                pass
            finally:
                opened.set()

        opened = threading.Event()
        threading.Thread(target=read, daemon=True).start()
        opened.wait(5)

    def send(self, call, text):
        self.open.append(call)
        threading.Thread(target=self.post, args=(text, call), daemon=True).start()

    def say(self, text):
        self.post(text)
        if "notifications/initialized" in text:
            self.listen()

    def leave(self):
        body = json.dumps({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).encode()
        headers = self.headers() | {"Host": self.url.netloc, "Content-Length": len(body)}
        head = f"POST {self.url.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        for _ in range(LEAVING):
            with socket.create_connection((self.url.hostname, self.url.port)) as connection:
                connection.sendall(head.encode() + body)

    def close(self):
        pass


def run(habit, options, report):
    client = Stdio(report, habit, [options.command, *options.args]) if options.command else Http(report, habit, options.url)
    try:
        client.begin(options)
        if habit == "leaves":
            client.leave()
        calls = options.calls * options.repeat
        timeout = options.timeout or options.deadline
        if habit == "same-ids" and options.url:
            threads = [threading.Thread(target=client.call, args=(*call, timeout)) for call in calls]
            for thread in threads:
                thread.start()
                # The calls have an order, and are open together.
                time.sleep(0.02)
            for thread in threads:
                thread.join()
        else:
            for call in calls:
                client.call(*call, timeout)
        time.sleep(options.linger)
    except OSError as error:
        report.fault(error)
    client.close()


def main():
    import driver

    habit, options = sys.argv[2], driver.Options(sys.argv[3:])
    report, ended = Report(habit), queue.Queue()
    threading.Thread(target=lambda: ended.put(run(habit, options, report)), daemon=True).start()
    try:
        ended.get(timeout=options.deadline)
    except queue.Empty:
        report.fault(f"deadline of {options.deadline} s reached")
    print(json.dumps(report.data), flush=True)


if __name__ == "__main__":
    main()
