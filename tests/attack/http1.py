"""Attacks by HTTP/1.1 requests, and by connections that say little."""
import json
import socket
import time

from tools import Serve, Upstream, answer_of, attack, call, get, post, route, stdio, until, INITIALIZE

HIDDEN = "POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Smuggled: yes\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = "0\r\n\r\n"


def smuggling():
    """Requests that two readers cut in two ways: each has HIDDEN behind the place where one of them stops."""
    head = "POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    length = f"Content-Length: {len(CHUNKED + HIDDEN)}\r\n"
    plain = f"Content-Length: {len(HIDDEN)}\r\n"
    codings = ["chunked", " chunked", "Chunked", "chunked, identity", "identity, chunked", "xchunked", "chunked\t", "\tchunked",
               "\x0bchunked", "chunked\x00", "\"chunked\"", "chunked;q=1", "gzip, chunked", "chunked, chunked", "identity"]
    for coding in codings:
        yield f"{head}{length}Transfer-Encoding: {coding}\r\n\r\n{CHUNKED}{HIDDEN}"
    for name in ["Transfer-Encoding ", " Transfer-Encoding", "Transfer_Encoding", "Transfer-Encoding\t", "X: 1\nTransfer-Encoding",
                 "X: 1\rTransfer-Encoding", "X: 1\r\n\tTransfer-Encoding", "Transfer-Encoding\x00"]:
        yield f"{head}{length}{name}: chunked\r\n\r\n{CHUNKED}{HIDDEN}"
    for value in ["+0", "-1", "0x0", "00", "0, 0", f"0, {len(HIDDEN)}", "0\x00", "\x0b0", "1e1", " 0 ", "99999999999999999999"]:
        yield f"{head}Content-Length: {value}\r\n\r\n{HIDDEN}"
    yield f"{head}Content-Length: 0\r\n{plain}\r\n{HIDDEN}"
    yield f"{head}{plain}Content-Length: 0\r\n\r\n{HIDDEN}"
    for size in ["0x0", "+0", "-0", "0_0", " 0", "0\x0b", "FFFFFFFFFFFFFFFFF", "00000000000000000", "0;a=\"\r\n\""]:
        yield f"{head}Transfer-Encoding: chunked\r\n\r\n{size}\r\n\r\n{HIDDEN}"
    for end in ["\n", "\r", "\n\r", "\r\r\n"]:
        yield f"{head}Transfer-Encoding: chunked\r\n\r\n2{end}{{}}{end}0{end}{end}{HIDDEN}"
        yield f"{head}Transfer-Encoding: chunked\r\n\r\n2;{end}{HIDDEN}\r\n0\r\n\r\n"
    for more in ["Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
                 "Upgrade: websocket\r\nConnection: Upgrade\r\n", "Connection: Content-Length\r\n", "Connection: Host, close\r\n",
                 "Expect: 100-continue\r\n", "Expect: 200-ok\r\n", "Connection: Transfer-Encoding\r\n", "Trailer: Content-Length\r\n"]:
        yield f"{head}{more}{plain}\r\n{HIDDEN}"
    yield f"GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n{plain}\r\n{HIDDEN}"
    yield f"DELETE /a HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n{len(HIDDEN):x}\r\n{HIDDEN}\r\n0\r\n\r\n"
    yield f"POST /a HTTP/1.0\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKED}{HIDDEN}"
    yield f"POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nContent-Length: 0\r\nX: {HIDDEN}\r\n\r\n"
    yield f"POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n Content-Length: 0\r\n\r\n{HIDDEN}"
    yield f"POST /a HTTP/0.9\r\n\r\n{HIDDEN}"


@attack
def smuggled_requests():
    """A request in the body of another one, by lengths that two readers see differently."""
    upstream = Upstream()
    serve = Serve(route(upstream))
    tried = 0
    for text in smuggling():
        serve.ask(text.encode("latin-1"), wait=1)
        tried += 1
    # A request that Milepost reads itself is one of the client's. What counts is that the server reads no other.
    asked = [head for head, _ in upstream.asked]
    for head in asked:
        lower = head.lower()
        lengths = lower.count(b"\r\ncontent-length:")
        assert lengths + lower.count(b"\r\ntransfer-encoding:") <= 1 and lower.count(b"\r\nhost:") == 1, head
        assert b"\r\nupgrade:" not in lower and b"\x00" not in lower, head
        assert b"\n" not in head.replace(b"\r\n", b"") and b"\r" not in head.replace(b"\r\n", b""), head
    through = serve.metric("milepost_server_sent_bytes_total")
    assert serve.is_served() < 5
    return f"{tried} spellings, {len(asked)} requests at the server, each with one length ({through:.0f} bytes)"


@attack
def pipelined_requests_keep_their_answers():
    """Two requests in one packet, the first of them refused: the second must not be read as its body."""
    upstream = Upstream()
    serve = Serve(route(upstream))
    bad = "POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000000\r\n\r\n"
    status, got = serve.ask(bad + HIDDEN, wait=3)
    assert status == 404 and got.count(b"HTTP/1.1 ") == 1 and not upstream.asked, got[:200]
    return "1 answer for what Milepost refused, none for what followed"


@attack
def header_injection():
    """Ends of lines in the values of headers, paths and session ids."""
    upstream = Upstream()
    serve = Serve(route(upstream))
    tried = 0
    for bad in [b"a\rX-Evil: 1", b"a\x00X-Evil: 1", b"a\r\n X-Evil: 1", b"a%0d%0aX-Evil: 1", b"a\xe5\x98\x8aX-Evil: 1"]:
        for name in [b"X-Any", b"Mcp-Session-Id", b"Authorization", b"Last-Event-ID", b"Accept-Language"]:
            serve.ask(post("{}").encode().replace(b"Connection: close", name + b": " + bad + b"\r\nConnection: close"), wait=2)
            tried += 1
    for target in ["/a?x=%0d%0aX-Evil:%201", "/a?x=\x01", "/a\rX-Evil: 1"]:
        serve.ask(post("{}", target), wait=2)
        tried += 1
    for head, _ in upstream.asked:
        assert not any(line.lower().startswith(b"x-evil:") for line in head.replace(b"\r", b"\n").split(b"\n")), head
    return f"{tried} values, {len(upstream.asked)} requests at the server, no header of the attacker's"


@attack
def huge_heads():
    """Heads that are too long, too many lines, or one endless line."""
    serve = Serve(stdio())
    before = serve.resident()
    seen = []
    for text in [post("{}", headers=["X: " + "a" * 70_000]), post("{}", headers=[f"X-{n}: a" for n in range(10_000)]),
                 "GET /" + "a" * 1_000_000 + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "POST " + "a" * 1_000_000, "\r\n" * 500_000,
                 post("{}", headers=["X" * 70_000 + ": a"])]:
        status, _ = serve.ask(text, wait=12)
        seen.append(status)
        assert status in (0, 400, 404, 414, 431), status
    grown = serve.resident() - before
    assert grown < 16, f"{grown:.0f} MB"
    serve.is_served()
    return f"statuses {seen}, {grown:.1f} MB more"


@attack
def slow_heads():
    """300 clients that send a byte of a head each second (slowloris)."""
    serve = Serve(stdio())
    made = [serve.open() for _ in range(300)]
    began, worst, text = time.monotonic(), 0, post("{}").encode()
    while made and time.monotonic() - began < 16:
        at = int(time.monotonic() - began)
        left = []
        for one in made:
            try:
                one.sendall(text[at:at + 1])
                one.setblocking(False)
                try:
                    if one.recv(100) == b"":
                        continue
                    continue
                except BlockingIOError:
                    pass
                one.setblocking(True)
                left.append(one)
            except OSError:
                pass
        made = left
        worst = max(worst, serve.is_served())
        time.sleep(1)
    took = time.monotonic() - began
    assert not made and took < 15, f"{len(made)} are still open after {took:.0f} s"
    assert worst < 3, f"another client waited {worst:.1f} s"
    return f"all cut after {took:.0f} s; another client waited at most {worst * 1000:.0f} ms"


@attack
def silent_connections():
    """2,000 connections that say nothing, and 200 on the admin listener."""
    serve = Serve(stdio())
    before = serve.descriptors()
    made = [serve.open() for _ in range(2000)] + [serve.open(serve.admin) for _ in range(200)]
    worst = max(serve.is_served() for _ in range(5))
    status, _ = serve.ask(get("/livez", serve.admin), serve.admin)
    assert status == 200 and worst < 3, (status, worst)
    began = time.monotonic()
    until("closed", lambda: serve.descriptors() < before + 60, 20)
    took = time.monotonic() - began
    [one.close() for one in made]
    return f"others waited {worst * 1000:.0f} ms; all were closed after {took:.0f} s"


@attack
def slow_bodies():
    """50 clients that send a byte of their body each second."""
    serve = Serve(stdio(more="body_timeout = \"20s\""))
    made = []
    for _ in range(50):
        one = serve.open()
        one.sendall(post("{" + " " * 1000 + "}").encode()[:-990])
        made.append(one)
    began, statuses, worst = time.monotonic(), [], 0
    while made and time.monotonic() - began < 20:
        for one in list(made):
            try:
                one.sendall(b" ")
            except OSError:
                pass
            one.settimeout(0.001)
            try:
                got = one.recv(4096)
                statuses.append(int(got.split(b" ")[1]) if got else 0)
                made.remove(one)
            except TimeoutError:
                pass
            except OSError:
                made.remove(one)
        worst = max(worst, serve.is_served())
        time.sleep(1)
    took = time.monotonic() - began
    assert not made and took < 19, f"{len(made)} are still read after {took:.0f} s"
    assert set(statuses) <= {408, 0} and statuses.count(408) > 25, statuses
    return f"{statuses.count(408)} answers 408 after {took:.0f} s; another client waited at most {worst * 1000:.0f} ms"


@attack
def chunks_of_one_byte():
    """20 bodies of 500,000 chunks of one byte each, none of which ends."""
    serve = Serve(stdio())
    before, made = serve.resident(), []
    piece = b"1\r\n \r\n" * 500_000
    for _ in range(20):
        one = serve.open()
        one.sendall(b"POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            one.sendall(piece)
        except OSError:
            pass
        made.append(one)
    time.sleep(1)
    grown = serve.resident() - before
    assert grown < 60, f"{grown:.0f} MB for 10 MB of bodies"
    worst = serve.is_served()
    return f"{grown:.1f} MB for 10 MB of bodies; another client waited {worst * 1000:.0f} ms"


@attack
def bodies_without_end():
    """60 bodies of 4 MB each that are never whole, with room for 64 MB."""
    serve = Serve(route(Upstream(lambda made, head, body: time.sleep(30))), server="max_unread_bytes = 67_108_864")
    before, statuses, made = serve.resident(), [], []
    for _ in range(60):
        one = serve.open()
        one.settimeout(0.5)
        try:
            one.sendall(b"POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                        b"Content-Length: 4000000\r\n\r\n" + b" " * 3_000_000)
            statuses.append(answer_of(one)[0])
        except OSError:
            statuses.append(answer_of(one)[0])
        made.append(one)
    grown = serve.resident() - before
    assert 503 in statuses and grown < 160, (statuses, grown)
    [one.close() for one in made]
    until("room again", lambda: serve.metric("milepost_streams") == 0)
    counted = serve.metric("milepost_bodies_refused_total", "no-room")
    return f"{statuses.count(503)} of 60 got 503 ({counted:.0f} counted), {grown:.0f} MB more"


@attack
def paths():
    """Spellings of paths that might lead to another route, or to the pages of operators."""
    private, public = Upstream(), Upstream()
    serve = Serve(route(public, path="/open/a") + route(private, path="/open/private"))
    tried = ["/open/a/../private", "/open/a/..%2fprivate", "/open/a/%2e%2e/private", "//open/private", "/open//private",
             "/open/private;x", "/open/%70rivate", "/OPEN/PRIVATE", "/open/a\\..\\private", "/open/private%00", "/open/./private",
             "http://evil.example/open/private", "/metrics", "/calls", "/log-level", "/open/#/../private", "*", "/open/private%20"]
    for target in tried:
        status, _ = serve.ask(post(INITIALIZE, target))
        assert status in (0, 400, 403, 404, 405), (target, status)
    for path in ["/", "/open/a", "/openness", "/open/privat"]:
        serve.ask(post(INITIALIZE, path))
    assert not private.asked, private.text()
    return f"{len(tried)} spellings, none at another route"


@attack
def loops():
    """A route that leads to Milepost itself, and 17 names in Via."""
    serve = Serve('[[route]]\npath = "/a"\nupstream.url = "http://127.0.0.1:PORT/a"\n')
    before = serve.cpu()
    status, got = serve.ask(post(INITIALIZE))
    assert status == 508 or b"loop" in got.lower() or b"passed" in got, got[:300]
    upstream = Upstream()
    other = Serve(route(upstream))
    hops = ", ".join(f"1.1 proxy{n}" for n in range(17))
    assert other.ask(post(INITIALIZE, headers=[f"Via: {hops}"]))[0] == 508
    assert not upstream.asked
    return f"508 after {serve.cpu() - before:.2f} s of CPU; 17 hops: 508"


@attack
def names_of_hosts():
    """Names that lead to this machine and belong to somebody else (DNS rebinding), in all spellings."""
    upstream = Upstream()
    serve = Serve(route(upstream))
    own = serve.port
    foreign = ["evil.example", "evil.example:80", f"evil.example:{own}", "localhost.evil.example", "127.0.0.1.evil.example",
               "127.0.0.1.nip.io", f"127.0.0.1:{own}.evil.example", "evil.example@127.0.0.1", "127.0.0.1@evil.example", "0.0.0.0",
               f"0.0.0.0:{own}", "[::]", "10.0.0.1", "192.168.0.1", "169.254.169.254",
               f"127.0.0.1:{own}:80", "127.0.0.1:", "[::ffff:10.0.0.1]", "localhost..", "locaIhost", "127.1.evil",
               "null", "*", "", " ", "127.0.0.1, evil.example", "127.0.0.1 evil.example", "127.0.0.1/evil", "ⓛocalhost", "127。0。0。1"]
    for host in foreign:
        status, _ = serve.ask(post(INITIALIZE, host=host), wait=3)
        accepted = host in ("127.0.0.1:",)
        assert status in (400, 403) or accepted and status == 200, (host, status)
    # Behind the forward of a port the name of loopback has the port of the forward.
    served = ["localhost:1", "127.0.0.1:1", "127.0.0.1:0", "127.0.0.1", f"127.0.0.1:{own}", f"localhost:{own}", "LOCALHOST", f"localhost.:{own}", "[::1]", f"[::ffff:127.0.0.1]:{own}"]
    accepted = [host for host in served if serve.ask(post(INITIALIZE, host=host))[0] == 200]
    assert "127.0.0.1" in accepted and f"localhost:{own}" in accepted, accepted
    twice = post(INITIALIZE, headers=["Host: evil.example"])
    assert serve.ask(twice)[0] == 400
    assert serve.ask(post(INITIALIZE, f"http://evil.example/a"))[0] in (400, 403)
    for head, _ in upstream.asked:
        assert b"evil" not in head, head
    return f"{len(foreign)} names refused; {len(accepted)} of {len(served)} own spellings served"


@attack
def pages_of_other_sites():
    """Requests that a browser sends for a page of another site."""
    upstream = Upstream()
    serve = Serve(route(upstream))
    origins = ["http://evil.example", "https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
               "http://127.0.0.1@evil.example", "file://", "http://", "", "http://localhost:80, http://evil.example", "http://evil.example#localhost",
               "http://evil.example/localhost", "moz-extension://x", "http://[::1].evil.example", "http://loсalhost"]
    for origin in origins:
        status, _ = serve.ask(post(INITIALIZE, headers=[f"Origin: {origin}"]), wait=3)
        assert status in (400, 403), (origin, status)
    for site in ["cross-site", "same-site"]:
        for text in [post(INITIALIZE, headers=[f"Sec-Fetch-Site: {site}"]), get("/a", serve.port, [f"Sec-Fetch-Site: {site}", "Accept: text/event-stream"]),
                     get("/a", serve.port, [f"Sec-Fetch-Site: {site}"], "DELETE")]:
            assert serve.ask(text)[0] == 403, text
    for kind in ["text/plain", "text/plain;charset=utf-8", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "TEXT/PLAIN"]:
        text = post(INITIALIZE, headers=["Origin: http://localhost:6274"]).replace("application/json\r\nAccept", f"{kind}\r\nAccept")
        assert serve.ask(text)[0] == 415, kind
    answer = serve.ask(post(INITIALIZE, headers=["Origin: http://evil.example"]))[1].lower()
    assert b"access-control-allow-origin" not in answer
    assert not upstream.asked, upstream.text()
    refused = serve.metric("milepost_requests_refused_total")
    return f"{len(origins)} origins, 6 requests without one, 5 types of forms: {refused:.0f} counted as refused"


@attack
def operators_pages_without_a_token():
    """The admin listener: paths, methods, tokens and spellings."""
    serve = Serve(stdio())
    tried = 0
    for path in ["/calls", "/tap", "/log-level", "/calls/", "//calls", "/calls?token=x", "/./calls", "/livez/../calls", "/%63alls", "/calls%00",
                 "/tap?route=/a", "/livez%2f..%2fcalls", f"http://127.0.0.1:{serve.admin}/calls"]:
        for method in ["GET", "HEAD", "POST", "PUT", "OPTIONS"]:
            for headers in [[], ["Authorization: Bearer"], ["Authorization: Bearer "], ["Authorization: Bearer x"], ["Authorization: Basic eDp5"],
                            ["Cookie: token=x"], ["milepost-admin: 1"], ["X-Forwarded-For: 127.0.0.1"]]:
                status, got = serve.ask(get(path, serve.admin, headers, method), serve.admin)
                assert status in (400, 401, 403, 404, 405), (method, path, headers, status)
                assert serve.token().encode() not in got
                tried += 1
    for host in ["evil.example", f"evil.example:{serve.admin}", "0.0.0.0"]:
        text = get("/metrics", serve.admin).replace(f"127.0.0.1:{serve.admin}", host)
        assert serve.ask(text, serve.admin)[0] == 403, host
    right = serve.ask(get("/calls", serve.admin, [f"Authorization: Bearer {serve.token()}"]), serve.admin)[0]
    assert right == 200, right
    assert serve.token() not in serve.log()
    return f"{tried} requests without the token, none answered"


@attack
def answers_that_nobody_asked_to_log():
    """Names, agents and tools with ends of lines, escapes and signs that turn text around, for the log."""
    text = r'''
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    sys.stderr.write("\x1b[2J\x1b]0;evil\x07 2026-01-01T00:00:00Z ERROR forged\u202e\u2066\x9b31m\r")
    sys.stderr.write("\n2026-01-01T00:00:00Z  INFO listening address=6.6.6.6:1\n")
    sys.stderr.flush()
    if "id" in said:
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {},
              "serverInfo": {"name": "\x1b[31ms\n2026 ERROR forged", "version": "\u202e"}}}), flush=True)
'''
    serve = Serve(stdio(text), environment={"MILEPOST_LOG": "trace"})
    evil = "\x1b[2J\u202e\n2026-01-01T00:00:00.000000Z ERROR forged"
    begin = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": evil, "version": evil}}})
    serve.ask(post(begin))
    session = serve.ask(post(begin))[1].lower().split(b"mcp-session-id: ")[1].split(b"\r\n")[0].decode()
    serve.ask(call(1, evil, evil, session), wait=3)
    serve.ask(post(begin, host="evil.example\x1b[2J"), wait=2)
    serve.ask(post(begin, headers=["Origin: http://evil.example/\x1b[31m"]), wait=2)
    serve.ask(post(begin, "/nowhere?\x1b[2J"), wait=2)
    time.sleep(0.5)
    log = serve.log_file.read_bytes()
    for sign in [b"\x1b", b"\x07", b"\x9b", "\u202e".encode(), "\u2066".encode(), b"\r"]:
        at = log.find(sign)
        assert at < 0, log[max(0, at - 200):at + 50]
    forged = [line for line in log.splitlines() if line.startswith((b"2026-01-01T00:00:00", b"2026 ERROR"))]
    assert not forged, forged[:3]
    return f"{len(log.splitlines())} lines at trace, none forged, no escape"


@attack
def a_log_that_is_filled():
    """3,000 requests that are refused, one after the other."""
    serve = Serve(stdio())
    with serve.open() as one:
        began = time.monotonic()
        for _ in range(3000):
            one.sendall(get("/nowhere", serve.port).replace("Connection: close\r\n", "").encode())
            answer_of(one)
        took = time.monotonic() - began
    lines = serve.log().count("refused")
    assert lines <= 10 * (took + 2), (lines, took)
    return f"{lines} lines in {took:.1f} s"


@attack
def resets_and_half_closed_connections():
    """2,000 connections that are reset in the middle of a request, or closed on one side."""
    serve = Serve(stdio())
    serve.is_served()
    before = serve.descriptors()
    for number in range(2000):
        one = serve.open()
        text = call(number).encode()
        one.sendall(text[:number % len(text)])
        if number % 2:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        else:
            one.shutdown(socket.SHUT_WR)
        one.close()
    until("closed", lambda: serve.descriptors() <= before + 3, 30)
    return f"{serve.descriptors() - before} descriptors more; another client waited {serve.is_served() * 1000:.0f} ms"
