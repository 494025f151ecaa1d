"""Attacks that shift the place where one HTTP/1.1 message ends: from clients, and from servers."""
import json
import socket
import threading
import time

from tools import Upstream, Serve, answer_json, attack, begin, call, post, read_body, read_head, route, stdio, until, INITIALIZE


def cut(data, methods):
    """Cuts the answers to these requests as RFC 9112 has it: their statuses and bodies, and what is left."""
    found, methods = [], list(methods)
    while data and methods:
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, data[:300]
        status = int(head.split(b" ")[1])
        if 100 <= status < 200:
            assert status != 101, head
            data = rest
            continue
        fields = [line.partition(b":") for line in head.lower().split(b"\r\n")[1:]]
        lengths = [value.strip() for name, _, value in fields if name == b"content-length"]
        codings = [value.strip() for name, _, value in fields if name == b"transfer-encoding"]
        assert len(lengths) + len(codings) <= 1, head
        method = methods.pop(0)
        if method == "HEAD" or status in (204, 304):
            body = b""
            assert status != 204 or not lengths and not codings, head
        elif codings:
            assert codings == [b"chunked"], head
            body = b""
            while True:
                line, _, rest = rest.partition(b"\r\n")
                size = int(line, 16)
                body, rest = body + rest[:size], rest[size:]
                if not size:
                    while True:
                        line, _, rest = rest.partition(b"\r\n")
                        if not line:
                            break
                    break
                assert rest.startswith(b"\r\n"), rest[:50]
                rest = rest[2:]
        elif lengths:
            size = int(lengths[0])
            body, rest = rest[:size], rest[size:]
            assert len(body) == size, (head, len(body))
        else:
            body, rest = rest, b""
        found.append((status, head, body))
        data = rest
    return found, data


def everything(made, wait=6):
    """All that comes until the other side closes or is silent."""
    made.settimeout(wait)
    got = b""
    try:
        while more := made.recv(1 << 16):
            got += more
    except OSError:
        pass
    return got


def plain(method, body="", headers=(), path="/a"):
    """A request that leaves the connection open."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json",
             "Accept: application/json, text/event-stream", *headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines) + "\r\n\r\n" + body


def ping(number):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"})


@attack
def pipelines_of_all_kinds():
    """16 requests in one packet, with and without bodies in their answers: each answer must stand at its place."""
    told = []
    for kind, routes in [("stdio", stdio()), ("HTTP", None)]:
        upstream = Upstream()
        serve = Serve(routes or route(upstream))
        named = [f"Mcp-Session-Id: {begin(serve)}"] if kind == "stdio" else []
        notification = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
        chunked = ["Transfer-Encoding: chunked"]
        sent, methods, numbers = "", [], []
        for number, (method, body, headers) in enumerate([
                ("POST", 1, []), ("HEAD", 0, []), ("POST", 1, ["Connection: content-length"]), ("POST", 2, []), ("OPTIONS", 0, []),
                ("POST", 1, ["Connection: host, content-type, content-length, transfer-encoding"]), ("HEAD", 0, ["Connection: x"]),
                ("POST", 1, ["Expect: 100-continue"]), ("POST", 3, ["Connection: transfer-encoding"]), ("POST", 1, ["TE: trailers, chunked"]),
                ("POST", 2, ["Connection: TE"]), ("PUT", 1, []), ("POST", 3, ["Trailer: content-length"]), ("POST", 1, [])]):
            text = {0: "", 1: ping(900 + number), 2: notification, 3: ping(900 + number)}[body]
            if body == 3:
                head = plain(method, "", [*named, *headers, *chunked]).replace("Content-Length: 0\r\n", "")
                sent += f"{head}{len(text):x}\r\n{text}\r\n0\r\nContent-Length: 77\r\nX: POST /evil HTTP/1.1\r\n\r\n"
            else:
                sent += plain(method, text, [*named, *headers])
            methods.append(method)
            numbers.append(900 + number if body in (1, 3) else None)
        with serve.open() as made:
            made.sendall(sent.encode())
            found, left = cut(everything(made), methods)
        assert not left, left[:300]
        # Milepost may close where the rest is not sure. What it does answer is the answer to that request.
        assert len(found) >= 1, found
        for (status, head, body), method, number in zip(found, methods, numbers):
            if number is None:
                assert b'"id":9' not in body.replace(b" ", b""), (method, body)
            elif status == 200:
                assert f'"id":{number}'.encode() in body.replace(b" ", b""), (number, body)
        for head, body in upstream.asked:
            lower = head.lower()
            assert lower.count(b"\r\ncontent-length:") + lower.count(b"\r\ntransfer-encoding:") <= 1, head
            assert b"\r\nhost:" in lower and b"evil" not in head.split(b"\r\n")[0], head
            if body:
                json.loads(body)
        assert serve.is_served() < 5
        told.append(f"{kind}: {len(found)} of {len(methods)}")
    return "answers in their places: " + ", ".join(told)


def odd_answers(text):
    """Answers of a server in which one reader sees an end where another sees none; EVIL stands behind the end."""
    size = len(text)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    length = b"content-length: %d\r\n" % size
    chunks = b"%x\r\n%s\r\n0\r\n" % (size, text)
    second = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\n\"EVIL\""
    whole = head + length + b"\r\n" + text
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-length: 5\r\n\r\n"
    return {
        "second answer": whole + second,
        "100": b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + whole + second,
        "100 with a length": b"HTTP/1.1 100 Continue\r\ncontent-length: %d\r\n\r\n" % len(whole) + whole + second,
        "103 with a length": interim + whole + second,
        "many 103": interim * 2000 + whole + second,
        "199": b"HTTP/1.1 199 X\r\ntransfer-encoding: chunked\r\n\r\n" + whole + second,
        "101": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + whole + second,
        "204 with a body": b"HTTP/1.1 204 No Content\r\ncontent-length: %d\r\n\r\n" % len(second) + second,
        "204 with chunks": b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n6\r\n\"EVIL\"\r\n0\r\n\r\n" + second,
        "304 with a body": b"HTTP/1.1 304 Not Modified\r\n" + length + b"\r\n" + second,
        "205 with a body": b"HTTP/1.1 205 Reset\r\ncontent-length: 0\r\n\r\n" + second,
        "trailers": head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"content-length: 3\r\nmcp-session-id: EVIL\r\n\r\n" + second,
        "trailers like an answer": head + b"transfer-encoding: chunked\r\n\r\n" + chunks + second.replace(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        "long trailers": head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"x: EVIL\r\n" * 40_000 + b"\r\n" + second,
        "chunks without end": head + b"transfer-encoding: chunked\r\n\r\n" + chunks[:-3] + second,
        "connection: content-length": head + b"connection: content-length\r\n" + length + b"\r\n" + text + second,
        "connection: transfer-encoding": head + b"connection: transfer-encoding\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"\r\n" + second,
        "connection names all": head + b"connection: content-type, content-length, keep-alive\r\n" + length + b"\r\n" + text + second,
        "both lengths": head + length + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"\r\n" + second,
        "two lengths": head + length + b"content-length: 6\r\n\r\n" + text + second,
        "lengths in a list": head + b"content-length: %d, %d\r\n\r\n" % (size, size) + text + second,
        "signed length": head + b"content-length: +%d\r\n\r\n" % size + text + second,
        "HTTP/1.0 with chunks": whole.replace(b"HTTP/1.1", b"HTTP/1.0").replace(length, b"transfer-encoding: chunked\r\nconnection: keep-alive\r\n") + second,
        "HTTP/1.0 that stays": whole.replace(b"HTTP/1.1", b"HTTP/1.0").replace(length, length + b"connection: keep-alive\r\n") + second,
        "HTTP/2.0": whole.replace(b"HTTP/1.1", b"HTTP/2.0") + second,
        "short length": head + b"content-length: %d\r\n\r\n" % (size - 4) + text + second,
        "space before the colon": head + b"transfer-encoding : chunked\r\n" + length + b"\r\n" + text + second,
        "folded line": head + b"x: a\r\n content-length: 3\r\n" + length + b"\r\n" + text + second,
        "bare CR": head + b"x: a\rcontent-length: 3\r\n" + length + b"\r\n" + text + second,
        "empty lines ahead": b"\r\n" * 5 + whole + second,
        "words ahead": b"EVIL\r\n" + whole + second,
        "chunk with a name": head + b"transfer-encoding: chunked\r\n\r\n" + chunks.replace(b"\r\n", b';x="\r\n', 1) + b"\r\n" + second,
        "huge chunk": head + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff0\r\n" + text + second,
        "gzip, chunked": head + b"transfer-encoding: gzip, chunked\r\n\r\n" + chunks + b"\r\n" + second,
        "identity": head + b"transfer-encoding: identity\r\n" + length + b"\r\n" + text + second,
    }


@attack
def answers_whose_end_is_in_doubt():
    """35 kinds of answers with a second one behind: nobody gets the second, and every answer is cut alike by all."""
    kinds = list(odd_answers(b"{}"))

    def handle(made, head, body):
        said = json.loads(body)
        if said["method"] != "tools/call":
            return answer_json(made, head, body)
        text = json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": {"content": [{"of": said["id"]}]}}).encode()
        name = said["params"]["name"]
        if name == "good":
            made.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
        else:
            made.sendall(odd_answers(text)[name])
    serve = Serve(route(Upstream(handle)))
    statuses = []
    for number, kind in enumerate(kinds):
        # The client's connection stays, and another client uses the connection to the server next.
        with serve.open() as made:
            for sent, name in [(10 * number + 1, kind), (10 * number + 2, "good"), (10 * number + 3, kind)]:
                made.sendall(call(sent, name).replace("Connection: close\r\n", "").encode())
                got = b""
                made.settimeout(0.4)
                try:
                    while more := made.recv(1 << 16):
                        got += more
                        if name == "good":
                            break
                except OSError:
                    pass
                assert b"EVIL" not in got, (kind, name, got[-300:])
                if not got:
                    break
                # A body that breaks off is one whose end nobody takes for true.
                try:
                    found, left = cut(got, ["POST"])
                except (AssertionError, ValueError):
                    assert name == kind and kind in ("chunks without end", "huge chunk", "short length"), (kind, name, got[:300])
                    break
                assert not left, (kind, left[:200])
                statuses.append(found[0][0])
                if found[0][0] == 200:
                    assert b'"of": %d}' % sent in found[0][2] or kind == "short length", (kind, name, got)
                if name == "good":
                    assert found[0][0] == 200, (kind, got)
        _, got = serve.ask(call(10 * number + 4, "good"), wait=5)
        assert b'"of": %d}' % (10 * number + 4) in got, (kind, got)
    return f"{len(kinds)} kinds, {statuses.count(200)} answers 200, {statuses.count(502)} answers 502"


@attack
def bodies_that_break_off():
    """Clients that leave in the middle of a body: no later request is the rest of it at the server."""
    wrong, seen = [], []

    class Strict(Upstream):
        """A server that reads what comes on each connection as RFC 9112 has it, and keeps it."""

        def serve(self, made):
            reader = made.makefile("rb")
            try:
                while head := read_head(reader):
                    if not head.startswith(b"POST /mcp HTTP/1.1\r\n"):
                        wrong.append(head[:200])
                    body = read_body(head, reader)
                    size = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                    if size and len(body) < int(size[0].split(b":")[1]):
                        return
                    if b"MARK" in body and b"FILL" in body:
                        wrong.append(b"one in the other: " + body[:100])
                    seen.append(body)
                    answer_json(made, head, body)
            except (OSError, ValueError):
                pass
            finally:
                made.close()
    serve = Serve(route(Strict()))
    start = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"x":"'
    for number in range(24):
        size = [100, 70_000, 5_000_000][number % 3]
        fill = "FILL" * (size // 4)
        whole = start + fill + '"}}}'
        one = serve.open()
        if number % 2:
            text = post(whole).encode()
            one.sendall(text[:-(size // 2)])
        else:
            text = plain("POST", "", ["Transfer-Encoding: chunked"]).replace("Content-Length: 0\r\n", "").encode()
            one.sendall(text + b"%x\r\n%s" % (len(whole), whole.encode()[:-(size // 2)]))
        time.sleep(0.05)
        if number % 4 < 2:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        one.close()
        status, got = serve.ask(call(number, "MARK"))
        assert status == 200 and b'"content"' in got, (number, got)
    assert not wrong, wrong[:2]
    return f"{len(seen)} whole requests, none inside another"


@attack
def servers_that_answer_too_early():
    """Servers that refuse a request of 6 MB after its head and keep the connection: nobody gets the answers to
    what such a server takes for requests."""
    heads = []

    def handle(made, head, body):
        answer_json(made, head, body)

    class Early(Upstream):
        def serve(self, made):
            reader = made.makefile("rb")
            try:
                while head := read_head(reader):
                    heads.append(head)
                    lower = head.lower()
                    large = b"chunked" in lower or int((lower.split(b"content-length:") + [b"0\r\n"])[1].split(b"\r\n")[0]) > 1_000_000
                    if large:
                        made.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n")
                        time.sleep(0.1)
                        # The server forgets the body, and takes what comes for a request.
                        continue
                    handle(made, head, read_body(head, reader))
            except (OSError, ValueError):
                pass
            finally:
                made.close()
    serve = Serve(route(Early()))
    hidden = "POST /evil HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}\r\n"
    body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"x":"' + hidden * 90_000 + '"}}}'
    for number in range(6):
        threading.Thread(target=lambda: serve.ask(post(body), wait=5), daemon=True).start()
        time.sleep(0.3)
        status, got = serve.ask(call(number))
        assert status == 200 and f'"id": {number}'.encode() in got, (number, got)
    whole = [head for head in heads if head.startswith(b"POST /mcp HTTP/1.1\r\n")]
    return f"{len(whole)} requests, {len(heads) - len(whole)} pieces of bodies read as heads"


@attack
def answers_before_any_request():
    """Servers that answer when a connection begins, or between two requests: whose answer is it?"""
    told = []
    for early in [True, False]:
        class Eager(Upstream):
            def serve(self, made):
                second = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\n\"EVIL\""
                reader = made.makefile("rb")
                try:
                    if early:
                        made.sendall(second)
                    while head := read_head(reader):
                        answer_json(made, head, read_body(head, reader))
                        time.sleep(0.05)
                        made.sendall(second)
                except (OSError, ValueError):
                    pass
                finally:
                    made.close()
        serve = Serve(route(Eager()))
        evil = 0
        for number in range(10):
            status, got = serve.ask(call(number), wait=3)
            evil += b"EVIL" in got
            assert b"EVIL" in got or status != 200 or f'"id": {number},'.encode() in got, got
            time.sleep(0.15)
        # On a new connection nobody can tell an early answer from a quick one; later ones are surplus.
        assert early or not evil, evil
        told.append(f"{'at the beginning' if early else 'between'}: {evil} of 10")
    return ", ".join(told)
