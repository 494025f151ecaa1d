"""HTTP/1.1 of a client over one raw connection, and events."""
import asyncio
import socket

SLOW_BYTES = 2048
SLOW_PAUSE = 0.002


class Connection:
    """A connection; a slow one has a small receive buffer and reads in small pieces with pauses."""

    def __init__(self, reader, writer, slow):
        self.reader, self.writer, self.slow = reader, writer, slow

    @classmethod
    async def open(cls, port, slow=False):
        made = socket.socket()
        made.setblocking(False)
        if slow:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BYTES)
        try:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
            return cls(*await asyncio.open_connection(sock=made, limit=4096 if slow else 1 << 17), slow)
        except BaseException:
            made.close()
            raise

    async def send(self, method, path, headers, body=b""):
        """Sends a request and reads the head of its response."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
        if body or method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        try:
            self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await self.writer.drain()
        except ConnectionError:
            pass  # The response may tell why the request was not read.
        return await self.head()

    async def head(self):
        status = await self.reader.readline()
        if not status:
            raise ConnectionError("closed before the response")
        headers = {}
        while (line := (await self.reader.readline()).strip()):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return Response(self, int(status.split()[1]), headers)

    async def some(self, most):
        """Reads up to `most` bytes."""
        if self.slow:
            await asyncio.sleep(SLOW_PAUSE)
        piece = await self.reader.read(min(most, SLOW_BYTES if self.slow else 1 << 16))
        if not piece:
            raise ConnectionError("closed within a body")
        return piece

    def abort(self):
        self.writer.transport.abort()

    def close(self):
        self.writer.close()


class Response:
    """The head of a response, and its body."""

    def __init__(self, connection, status, headers):
        self.connection, self.status, self.headers = connection, status, headers
        self.is_stream = headers.get("content-type", "").startswith("text/event-stream")

    async def pieces(self):
        if "chunked" in self.headers.get("transfer-encoding", ""):
            reader = self.connection.reader
            while size := int((await reader.readline()).split(b";")[0] or b"", 16):
                while size:
                    piece = await self.connection.some(size)
                    size -= len(piece)
                    yield piece
                await reader.readline()
            await reader.readline()
            return
        left = int(self.headers.get("content-length", 0))
        while left:
            piece = await self.connection.some(left)
            left -= len(piece)
            yield piece

    async def whole(self):
        return b"".join([piece async for piece in self.pieces()])

    async def events(self):
        """The events of the body: their id, their type and their data."""
        kept, fields = bytearray(), {"id": "", "event": "message", "data": []}
        async for piece in self.pieces():
            searched = len(kept)
            kept += piece
            while (end := kept.find(b"\n", searched)) >= 0:
                line, searched = bytes(kept[:end]).rstrip(b"\r"), 0
                del kept[:end + 1]
                if not line:
                    if fields["data"] or fields["id"]:
                        yield fields["id"], fields["event"], b"\n".join(fields["data"])
                    fields = {"id": "", "event": "message", "data": []}
                    continue
                name, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if name == b"data":
                    fields["data"].append(value)
                elif name in (b"id", b"event"):
                    fields[name.decode()] = value.decode()
