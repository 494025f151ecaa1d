#!/usr/bin/env python3
"""A legacy MCP server for the examples of agent frameworks: its slow tool reports in a form that no client knows.

`server.py` speaks over standard input and output; `server.py --http PORT` over Streamable HTTP on loopback, at /mcp and
with sessions. `--log FILE` appends each message of a client, and the end of each slow call, as a line of JSON. Only the
standard library of Python 3 is needed.

The tool `report` takes {"seconds": 3} and reports its steps with the method `tools/progress` and the id of the request:

    {"jsonrpc":"2.0","method":"tools/progress","params":{"requestId":2,"percent":20,"message":"step 3 of 15"}}
"""

import argparse
import base64
import http.server
import json
import os
import struct
import sys
import threading
import time
import uuid
import zlib

STEPS = 15
"""Reports of one slow call."""


def png():
    """A picture of one red pixel."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b"\0\xff\0\0")), (b"IEND", b"")]
    chunks = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def tool(name, description, properties, **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}, **more}


CELSIUS = {"type": "object", "properties": {"celsius": {"type": "number"}}, "required": ["celsius"]}
TOOLS = [
    tool("greet", "Greets somebody", {"name": {"type": "string"}}),
    tool("picture", "Draws a red pixel", {}),
    tool("measure", "Measures the temperature", {}, outputSchema=CELSIUS),
    tool("fail", "Fails each time", {}),
    tool("report", "Writes a report, which takes its time", {"seconds": {"type": "number"}}),
]


def text(words):
    return {"content": [{"type": "text", "text": words}]}


class Server:
    """The answers of the server. `cancelled` has the calls that their clients have given up, by client and id."""

    def __init__(self, log):
        self.log, self.lock, self.cancelled = log, threading.Lock(), set()

    def write(self, **line):
        if self.log:
            with self.lock, open(self.log, "a") as file:
                file.write(json.dumps({"pid": os.getpid(), "at": time.time(), **line}) + "\n")

    def handle(self, message, client, send):
        """Handles one message; `send` takes each message of the server, the answer as the last one."""
        self.write(message=message)
        method, identity, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "notifications/cancelled":
            self.cancelled.add((client, params.get("requestId")))
        if identity is None or method is None:
            return
        if method == "initialize":
            about = {"serverInfo": {"name": "reports", "version": "1"}, "capabilities": {"tools": {}}}
            answer = {"result": {"protocolVersion": "2025-06-18", **about}}
        elif method == "ping":
            answer = {"result": {}}
        elif method == "tools/list":
            answer = {"result": {"tools": TOOLS}}
        elif method == "tools/call":
            answer = self.call(params.get("name"), params.get("arguments") or {}, client, identity, send)
        else:
            answer = {"error": {"code": -32601, "message": f"{method} is not known"}}
        if answer:
            send({"jsonrpc": "2.0", "id": identity, **answer})

    def call(self, name, arguments, client, identity, send):
        """The answer of a tool; None if the client has cancelled the call."""
        if name == "greet":
            return {"result": text(f"Hello, {arguments.get('name', 'world')}.")}
        if name == "picture":
            return {"result": {"content": [{"type": "image", "mimeType": "image/png", "data": png()}]}}
        if name == "measure":
            return {"result": {**text('{"celsius": 21.5}'), "structuredContent": {"celsius": 21.5}}}
        if name == "fail":
            return {"result": {**text("The paper is empty."), "isError": True}}
        if name != "report":
            return {"error": {"code": -32602, "message": f"there is no tool {name}"}}
        for step in range(1, STEPS + 1):
            time.sleep(float(arguments.get("seconds", 3)) / STEPS)
            if (client, identity) in self.cancelled:
                return None
            params = {"requestId": identity, "percent": 100 * step // STEPS, "message": f"step {step} of {STEPS}"}
            if step < STEPS:
                send({"jsonrpc": "2.0", "method": "tools/progress", "params": params})
        self.write(finished=identity)
        return {"result": text(f"The report has {STEPS} pages.")}


def stdio(server):
    lock = threading.Lock()

    def send(message):
        with lock:
            print(json.dumps(message), flush=True)

    for line in sys.stdin:
        if line.strip():
            threading.Thread(target=server.handle, args=(json.loads(line), None, send), daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of_tools = None

    def log_message(self, *_):
        pass

    def respond(self, status, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        session = self.headers.get("Mcp-Session-Id")
        if "id" not in message or "method" not in message:
            self.server_of_tools.handle(message, session, None)
            return self.respond(202)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        if message["method"] == "initialize":
            session = uuid.uuid4().hex
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.close_connection = True
        self.wfile.flush()

        def send(message):
            # The work goes on although its client has left.
            try:
                self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
                self.wfile.flush()
            except OSError:
                pass

        return self.server_of_tools.handle(message, session, send)

    def do_GET(self):
        self.respond(405, [("Allow", "POST, DELETE")])

    def do_DELETE(self):
        self.respond(200)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", type=int, metavar="PORT", help="serve over Streamable HTTP; 0 chooses a port")
    parser.add_argument("--log", metavar="FILE", help="append each message of a client to this file")
    options = parser.parse_args()
    server = Server(options.log)
    if options.http is None:
        return stdio(server)
    handler = type("ToolsHandler", (Handler,), {"server_of_tools": server})
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", options.http), handler)
    listener.daemon_threads = True
    print(f"http://127.0.0.1:{listener.server_address[1]}/mcp", flush=True)
    return listener.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
