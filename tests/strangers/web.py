"""The HTTP side of the odd servers: Streamable HTTP, and HTTP+SSE for `jobs`."""
import asyncio
import json
import uuid

import servers

EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}
WORDS = {200: "OK", 202: "Accepted", 404: "Not Found", 503: "Service Unavailable"}
# The time without a request after which a connection is closed. `closing` closes so early that it meets requests.
IDLE = 5
IDLE_OF_CLOSING = 0.05


class Away(Exception):
    """The connection ends here, by the will of the server."""


class Web:
    """One server over HTTP, with its sessions and their listening streams."""

    def __init__(self, kind):
        self.kind, self.sessions = kind, {}

    async def serve(self, port):
        server = await asyncio.start_server(self.connection, "127.0.0.1", port, backlog=512, limit=1 << 20)
        async with server:
            await server.serve_forever()

    async def connection(self, reader, writer):
        idle = IDLE
        try:
            while True:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), idle)
                await self.request(writer, *parse(head), await body_of(head, reader))
                idle = IDLE_OF_CLOSING if self.kind == "closing" else IDLE
        except Away:
            writer.transport.abort()
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def request(self, writer, method, path, headers, body):
        session = headers.get("mcp-session-id") or path.partition("session=")[2]
        if method == "GET":
            await self.listen(writer, path, session)
        elif method == "DELETE":
            self.sessions.pop(session, None)
            await respond(writer, 200)
        elif session and session not in self.sessions:
            await respond(writer, 404, {"content-type": "text/plain"}, b"odd: no such session")
        else:
            await self.post(writer, path, session, json.loads(body))

    async def listen(self, writer, path, session):
        """Holds a GET stream open until its client leaves."""
        extra = {}
        if path.startswith("/sse"):
            session = uuid.uuid4().hex
            self.sessions[session] = []
        if session not in self.sessions:
            return await respond(writer, 404, {}, b"odd: no such session")
        await head_of(writer, 200, {**EVENTS, **extra, "transfer-encoding": "chunked"})
        if path.startswith("/sse"):
            await chunk(writer, f"event: endpoint\ndata: /messages?session={session}\n\n".encode())
        streams = self.sessions[session]
        streams.append(writer)
        try:
            while session in self.sessions:
                await asyncio.sleep(1)
                await chunk(writer, b": here\n\n")
        finally:
            streams.remove(writer)
            if path.startswith("/sse"):
                self.sessions.pop(session, None)
        await chunk(writer, b"")

    async def post(self, writer, path, session, request):
        if "id" not in request or "method" not in request:
            return await respond(writer, 202)
        is_call = request["method"] == "tools/call"
        if path.startswith("/messages"):
            await respond(writer, 202)
            stream = self.sessions[session][0]
            asyncio.ensure_future(unless_gone(self.work(stream, request) if is_call else event(stream, servers.greeting(request))))
        elif is_call:
            await self.call(writer, session, request)
        else:
            fresh = {}
            if request["method"] == "initialize":
                fresh = {"mcp-session-id": uuid.uuid4().hex}
                self.sessions[fresh["mcp-session-id"]] = []
            await respond(writer, 200, {"content-type": "application/json", **fresh}, json.dumps(servers.greeting(request)).encode())

    async def call(self, writer, session, request):
        odds = servers.chance(request)
        if self.kind == "moody" and odds < 5:
            raise Away
        if self.kind == "moody" and odds < 15:
            return await respond(writer, 503, {"content-type": "text/plain"}, b"odd: too busy")
        if self.kind == "closing" and odds < 50:
            await asyncio.sleep(0.2)
            body = json.dumps(servers.answer_of(self.kind, request)).encode()
            return await respond(writer, 200, {"content-type": "application/json"}, body)
        await head_of(writer, 200, {**EVENTS, "transfer-encoding": "chunked"})
        await self.work(writer, request, session)
        await chunk(writer, b"")

    async def work(self, writer, request, session=None):
        """Plays a call on its stream; what follows the answer goes to the listening streams as well."""
        answered = False
        for act in servers.play(self.kind, request):
            if isinstance(act, (int, float)):
                await asyncio.sleep(act)
                continue
            await event(writer, act, self.kind == "cut")
            if self.kind == "moody" and 15 <= servers.chance(request) < 18:
                raise Away
            if answered:
                for stream in list(self.sessions.get(session, [])):
                    await event(stream, act)
            answered = answered or "result" in act


async def unless_gone(work):
    """Ends the work of a call when the stream of its client has closed."""
    try:
        await work
    except OSError:
        pass


def parse(head):
    first, *lines = head.decode().split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return *first.split(" ")[:2], {name.lower(): value.strip() for name, _, value in pairs}


async def body_of(head, reader):
    headers = parse(head)[2]
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int((await reader.readline()).strip() or b"0", 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body
    return await reader.readexactly(int(headers.get("content-length", 0)))


async def head_of(writer, status, headers):
    lines = [f"HTTP/1.1 {status} {WORDS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    await writer.drain()


async def respond(writer, status, headers={}, body=b""):
    await head_of(writer, status, {**headers, "content-length": len(body)})
    writer.write(body)
    await writer.drain()


async def chunk(writer, piece):
    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    await writer.drain()


async def event(writer, message, cut=False):
    """Writes an event: whole, or cut into chunks of one byte that are sent a few at a time."""
    text = b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"
    if not cut:
        return await chunk(writer, text)
    bytes_as_chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in text)
    for at in range(0, len(bytes_as_chunks), 97):
        writer.write(bytes_as_chunks[at:at + 97])
        await writer.drain()
        await asyncio.sleep(0)
