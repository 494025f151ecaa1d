"""Attacks by frames of HTTP/2, written by hand."""
import socket
import struct
import time

from tools import Serve, Upstream, answer_json, attack, route, stdio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, more = len(data) - 127, bytes([127])
    while rest >= 128:
        more, rest = more + bytes([rest % 128 + 128]), rest // 128
    return more + bytes([rest]) + data


def fields(pairs, indexed=False):
    """Headers without Huffman codes; `indexed` puts them into the table of the other side."""
    return b"".join((b"\x40" if indexed else b"\x00") + text(name) + text(value) for name, value in pairs)


def head(method="POST", path="/a", more=()):
    return fields([(":method", method), (":scheme", "http"), (":authority", "127.0.0.1"), (":path", path),
                   ("content-type", "application/json"), ("accept", "application/json, text/event-stream"), *more])


def connect(serve):
    made = serve.open()
    made.sendall(PREFACE + frame(SETTINGS))
    return made


def send(made, data):
    """Sends; false if the other side has closed."""
    try:
        made.sendall(data)
        return True
    except OSError:
        return False


def drain(made, wait=0.2):
    """Reads what has come; false once the other side has closed."""
    made.settimeout(wait)
    try:
        while True:
            if not made.recv(1 << 16):
                return False
    except TimeoutError:
        return True
    except OSError:
        return False


def cost(serve, flood):
    """Plays a flood; CPU, memory, and the time in which another client is answered meanwhile."""
    serve.is_served()
    used, before = serve.cpu(), serve.resident()
    closed = flood()
    waited = serve.is_served()
    used, grown = serve.cpu() - used, serve.resident() - before
    assert waited < 5 and grown < 64, f"{waited:.1f} s, {grown:.0f} MB"
    return f"{used:.2f} s of CPU, {grown:.1f} MB more, {'closed' if closed else 'open'}; another client waited {waited * 1000:.0f} ms", used


@attack
def rapid_reset():
    """40,000 requests that are reset at once (CVE-2023-44487)."""
    upstream = Upstream()
    serve = Serve(route(upstream))

    def flood():
        made = connect(serve)
        for number in range(400):
            block = b"".join(frame(HEADERS, END_HEADERS, 2 * (100 * number + n) + 1, head())
                             + frame(RESET, 0, 2 * (100 * number + n) + 1, struct.pack(">I", 8)) for n in range(100))
            if not send(made, block):
                return True
        return not drain(made, 1)
    told, used = cost(serve, flood)
    assert used < 20, told
    return f"{told}; {len(upstream.asked)} reached the server"


@attack
def continuations_without_end():
    """A head in 50,000 frames that never ends (CVE-2024-27316)."""
    serve = Serve(stdio())

    def flood():
        made = connect(serve)
        send(made, frame(HEADERS, END_STREAM, 1, head()))
        for _ in range(500):
            if not send(made, b"".join(frame(CONTINUATION, 0, 1, fields([("x", "a" * 900)])) for _ in range(100))):
                return True
        return not drain(made, 1)
    told, _ = cost(serve, flood)
    return told


@attack
def empty_continuations():
    """100,000 frames without content that continue a head."""
    serve = Serve(stdio())

    def flood():
        made = connect(serve)
        send(made, frame(HEADERS, 0, 1, b""))
        for _ in range(100):
            if not send(made, frame(CONTINUATION, 0, 1) * 1000):
                return True
        return not drain(made, 1)
    told, used = cost(serve, flood)
    assert used < 5, told
    return told


@attack
def compressed_heads():
    """A head of 2 MB in a few bytes, by the table of the other side (HPACK bomb)."""
    serve = Serve(stdio())

    def flood():
        made = connect(serve)
        send(made, frame(HEADERS, END_HEADERS | END_STREAM, 1, head("GET") + fields([("x", "a" * 3900)], True)))
        for stream in range(3, 403, 2):
            if not send(made, frame(HEADERS, END_HEADERS | END_STREAM, stream, head("GET") + b"\xbe" * 8000)):
                return True
        return not drain(made, 2)
    told, _ = cost(serve, flood)
    return told


@attack
def floods_of_frames():
    """200,000 pings, settings, empty data frames and window updates."""
    serve = Serve(stdio())
    told = []
    floods = [("pings", frame(PING, 0, 0, b"12345678")), ("settings", frame(SETTINGS)), ("windows", frame(WINDOW, 0, 0, struct.pack(">I", 1))),
              ("resets", frame(RESET, 0, 1, struct.pack(">I", 8))), ("priorities", frame(2, 0, 3, b"\x00\x00\x00\x00\x10"))]
    for name, one in floods:
        def flood():
            made = connect(serve)
            made.settimeout(5)
            for _ in range(200):
                # The answers are never read.
                if not send(made, one * 1000):
                    return True
            return False
        told.append(f"{name} {cost(serve, flood)[0].split(',')[0]}")
    return ", ".join(told)


@attack
def many_streams():
    """2,000 calls on one connection, and 100 connections with 100 calls each, of a server that never answers."""
    upstream = Upstream(lambda made, head, body: time.sleep(60) if b"slow" in body else answer_json(made, head, body))
    serve = Serve(route(upstream, "max_streams = 3000"))

    def flood():
        made = connect(serve)
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}'
        for stream in range(1, 4001, 2):
            if not send(made, frame(HEADERS, END_HEADERS, stream, head()) + frame(DATA, END_STREAM, stream, body)):
                return True
        many = [connect(serve) for _ in range(100)]
        for one in many:
            for stream in range(1, 201, 2):
                if not send(one, frame(HEADERS, END_HEADERS, stream, head()) + frame(DATA, END_STREAM, stream, body)):
                    break
        return not drain(made, 1)
    told, _ = cost(serve, flood)
    return f"{told}; {len(upstream.asked)} at the server"


@attack
def headers_of_http2_that_http1_cannot_have():
    """Ends of lines, lengths, hop-by-hop headers and pseudo headers, for a server that speaks HTTP/1.1."""
    upstream = Upstream()
    serve = Serve(route(upstream))
    body = b'{"jsonrpc":"2.0","method":"x"}'
    bad = [("x", "a\r\nx-evil: 1"), ("x-evil\r\ny", "1"), ("x", "a\nx-evil: 1"), ("transfer-encoding", "chunked"), ("content-length", "0"),
           ("content-length", "999"), ("connection", "close"), ("x evil", "1"), ("x:evil", "1"), ("X-Upper", "1"), ("", "1"),
           (":path", "/other"), ("host", "evil.example"), ("upgrade", "websocket"), ("keep-alive", "1"), ("te", "chunked"),
           ("x", "a\x00b"), (":evil", "1"), ("cookie", "a\r\nb")]
    made = connect(serve)
    send(made, frame(HEADERS, END_HEADERS, 1, head()) + frame(DATA, END_STREAM, 1, body))
    drain(made)
    assert len(upstream.asked) == 1, "an ordinary request did not reach the server"
    tried = 0
    for name, value in bad:
        made = connect(serve)
        send(made, frame(HEADERS, END_HEADERS, 1, head(more=[(name, value)])) + frame(DATA, END_STREAM, 1, body))
        drain(made, 0.2)
        made.close()
        tried += 1
    for path in ["/a HTTP/1.1\r\nx-evil: 1\r\n", "/a\r\n\r\nGET /b", "/a b", "a", ""]:
        made = connect(serve)
        send(made, frame(HEADERS, END_HEADERS, 1, head(path=path)) + frame(DATA, END_STREAM, 1, body))
        drain(made, 0.2)
        made.close()
        tried += 1
    for head_seen, _ in upstream.asked:
        lower = head_seen.lower()
        assert b"evil" not in lower, head_seen
        assert lower.count(b"\r\ncontent-length:") + lower.count(b"\r\ntransfer-encoding:") <= 1, head_seen
        assert b"\r\nupgrade:" not in lower and b"\r\nkeep-alive:" not in lower, head_seen
    serve.is_served()
    return f"{tried} requests, {len(upstream.asked)} at the server, none with what HTTP/1.1 reads otherwise"


@attack
def connections_of_http2_without_a_stream():
    """500 connections of HTTP/2 that ask nothing and answer no ping."""
    serve = Serve(stdio(), server='http2_idle_timeout = "3s"')
    serve.is_served()
    before = serve.descriptors()
    made = [connect(serve) for _ in range(500)]
    began = time.monotonic()
    while serve.descriptors() > before + 20 and time.monotonic() - began < 20:
        time.sleep(0.2)
    left, took = serve.descriptors() - before, time.monotonic() - began
    [one.close() for one in made]
    assert left <= 20, f"{left} are open after {took:.0f} s"
    return f"all closed after {took:.1f} s (http2_idle_timeout = 3s)"
