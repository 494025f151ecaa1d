#!/usr/bin/env python3
"""An MCP server with one slow tool, for the example of several replicas.

`server.py` speaks over standard input and output; `server.py --http HOST:PORT` over Streamable HTTP at /mcp, with
sessions and with event ids, so that a client can resume. The tool `work` takes {"steps": 20, "ms": 200}: it reports
each step and then answers. With {"gate": FILE} it begins when there is such a file. Only the standard library of Python 3
is needed.
"""
import http.server
import json
import os
import sys
import threading
import time
import uuid


def respond(message, send):
    """Handles one message; `send` takes each message of the server, and the answer as the last one."""
    method, identity = message.get("method"), message.get("id")
    if identity is None or method is None:
        return
    result = {}
    if method == "initialize":
        version = message["params"].get("protocolVersion", "2025-06-18")
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "slow", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"steps": {"type": "integer"}, "ms": {"type": "integer"}}}
        result = {"tools": [{"name": "work", "inputSchema": schema}]}
    elif method == "tools/call":
        params = message["params"]
        arguments, token = params.get("arguments", {}), params.get("_meta", {}).get("progressToken")
        steps, pause = int(arguments.get("steps", 20)), int(arguments.get("ms", 200)) / 1000
        while arguments.get("gate") and not os.path.exists(arguments["gate"]):
            time.sleep(0.05)
        for step in range(1, steps + 1):
            time.sleep(pause)
            if token is not None:
                report = {"progressToken": token, "progress": step, "total": steps, "message": f"step {step}"}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": report})
        result = {"content": [{"type": "text", "text": f"{steps} steps done"}]}
    send({"jsonrpc": "2.0", "id": identity, "result": result})


def stdio():
    lock = threading.Lock()

    def send(message):
        with lock:
            print(json.dumps(message), flush=True)

    for line in sys.stdin:
        if line.strip():
            threading.Thread(target=respond, args=(json.loads(line), send), daemon=True).start()


class Stream:
    """The events of one response, kept for clients that resume."""

    def __init__(self):
        self.events, self.done, self.changed = [], False, threading.Condition()

    def add(self, message, is_last):
        with self.changed:
            self.events.append(json.dumps(message))
            self.done = self.done or is_last
            self.changed.notify_all()

    def read(self, after):
        """Yields each event behind number `after`, with its number, until the last one."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.done or len(self.events) > after, 15)
                new, done = self.events[after:], self.done
            for text in new:
                after += 1
                yield after, text
            if done and not new:
                return


SESSIONS, STREAMS = set(), {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def events(self, name, after):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            if after == 0:
                # The client can come back from now on, also if it has not been told anything yet.
                self.wfile.write(f"id: {name}-0\ndata:\n\n".encode())
                self.wfile.flush()
            for number, text in STREAMS[name].read(after):
                self.wfile.write(f"id: {name}-{number}\ndata: {text}\n\n".encode())
                self.wfile.flush()
        except OSError:
            pass

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        session = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize":
            session = str(uuid.uuid4())
            SESSIONS.add(session)
            answers = []
            respond(message, answers.append)
            headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", session)]
            return self.answer(200, headers, json.dumps(answers[0]).encode())
        if session not in SESSIONS:
            return self.answer(404)
        if "id" not in message or "method" not in message:
            return self.answer(202)
        name = uuid.uuid4().hex[:8]
        stream = STREAMS[name] = Stream()
        send = lambda message: stream.add(message, "id" in message)
        threading.Thread(target=respond, args=(message, send), daemon=True).start()
        self.events(name, 0)

    def do_GET(self):
        if self.headers.get("Mcp-Session-Id") not in SESSIONS:
            return self.answer(404)
        name, _, number = self.headers.get("Last-Event-ID", "").rpartition("-")
        if name not in STREAMS:
            return self.answer(405)
        self.events(name, int(number))

    def do_DELETE(self):
        SESSIONS.discard(self.headers.get("Mcp-Session-Id"))
        self.answer(200)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 512


if len(sys.argv) == 3 and sys.argv[1] == "--http":
    host, _, port = sys.argv[2].rpartition(":")
    Server((host, int(port)), Handler).serve_forever()
else:
    stdio()
