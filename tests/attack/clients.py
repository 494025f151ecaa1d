"""Attacks by clients of MCP on other clients, and on what all clients share."""
import json
import threading
import time

from tools import (MODERN, SERVER, Serve, Upstream, answer_of, attack, begin, call, get, modern, post, python, route, stdio,
                   until, INITIALIZE)

# A server whose reader is like that of Go: names of members fold case, and the last one of a name wins. It answers who
# has sent `id`, and tells on standard error what it understood.
FOLDING = r'''
import json, sys
FOLDS = {"\u017f": "s", "\u212a": "k"}
def fold(name):
    return "".join(FOLDS.get(sign, sign) for sign in name).lower()
def last_wins(pairs):
    return {(fold(name) if MODE == "go" else name): value for name, value in pairs}
MODE = sys.argv[1]
waiting = []
for line in sys.stdin:
    said = json.loads(line, object_pairs_hook=last_wins)
    params = said.get("params") or {}
    sys.stderr.write("understood %s %s %s\n" % (said.get("method"), said.get("id"), params.get("name")))
    sys.stderr.flush()
    result = {"resultType": "complete", "protocolVersion": "2026-07-28", "capabilities": {},
              "serverInfo": {"name": "s", "version": "1"}}
    if said.get("method") == "notifications/cancelled":
        wanted = params.get("requestid", params.get("requestId"))
        waiting = [one for one in waiting if one != wanted]
        continue
    if "id" not in said:
        continue
    if params.get("name") == "slow":
        waiting.append(said["id"])
        continue
    result["content"] = [{"type": "text", "text": "answer to %s" % params.get("name")}]
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
    if params.get("name") == "finish":
        for one in waiting:
            result["content"] = [{"type": "text", "text": "answer to slow"}]
            print(json.dumps({"jsonrpc": "2.0", "id": one, "result": result}), flush=True)
        waiting = []
'''
META = json.dumps(MODERN)
META_WITH = META[:-1] + ', "progressToken": 7}'


def spellings(name):
    """Other spellings of a member that some reader takes for the member."""
    yield from {name.upper(), name.capitalize(), name[0].upper() + name[1:], name[:-1] + name[-1].upper()} - {name}
    for sign, other in [("s", "\u017f"), ("k", "\u212a"), ("S", "\u017f")]:
        if sign in name:
            yield name.replace(sign, other, 1)
    yield f"\\u{ord(name[0]):04x}" + name[1:]
    yield name


def differentials(victim):
    """Messages of 2026-07-28 whose sender, method or parameters two readers see differently."""
    params = f'{{"name": "mine", "arguments": {{}}, "_meta": {META}}}'
    base = f'"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}'
    for name, value in [("id", victim), ("method", '"notifications/cancelled"'), ("params", f'{{"requestId": {victim}, "_meta": {META}}}'),
                        ("result", '{"content": []}'), ("error", '{"code": 1, "message": "m"}'), ("jsonrpc", '"1.0"')]:
        for other in spellings(name):
            yield f'{{{base}, "{other}": {value}}}'
            yield f'{{"{other}": {value}, {base}}}'
    for other in spellings("_meta"):
        yield base.replace('"_meta"', f'"{other}": {{"progressToken": {victim}}}, "_meta"').join("{}")
        yield base.replace(META, META + f', "{other}": {{"progressToken": {victim}}}').join("{}")
    for other in spellings("progressToken"):
        if other == "progressToken":
            continue
        yield base.replace(META, META_WITH[:-1] + f', "{other}": {victim}}}').join("{}")
    for text in [base.replace('"id": 1', f'"id": 1, "id": {victim}'), base.replace(META, META_WITH[:-1] + f', "progressToken": {victim}}}')]:
        yield text.join("{}")


@attack
def readers_that_see_other_messages():
    """A client of a shared server speaks for another one, by members that Go's and Python's readers take for others."""
    told = []
    for mode in ["go", "python"]:
        serve = Serve(stdio(FOLDING, args=[mode]))
        answers = []

        def victim():
            body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "slow", "arguments": {}, "_meta": MODERN}}
            answers.append(serve.ask(modern(body, "slow"), wait=60)[1])
        waiting = threading.Thread(target=victim)
        waiting.start()
        until("the call of the victim", lambda: " slow" in serve.log())
        # The attacker is lucky, and knows what the server calls the victim's request.
        line = next(line for line in serve.log().splitlines() if "understood tools/call" in line and " slow" in line)
        name = line.split("understood tools/call ")[1].split(" ")[0]
        tried = refused = 0
        for text in differentials(name):
            status, got = serve.ask(modern(text, "mine"), wait=10)
            tried += 1
            refused += b"-32600" in got
            assert b"answer to slow" not in got, (text, got)
            # What passes is read alike by everybody: it has only the members that its sender may have.
            assert b"-32600" in got or b"answer to mine" in got or status in (400, 404), (text, got[:400])
        assert not answers, answers
        assert "understood notifications/cancelled" not in serve.log()
        serve.ask(modern({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {
            "name": "finish", "arguments": {}, "_meta": MODERN}}, "finish"))
        waiting.join(20)
        assert answers and b"answer to slow" in answers[0] and b'"id":5' in answers[0].replace(b" ", b""), answers
        told.append(f"{mode}: {refused} of {tried} refused")
    return ", ".join(told) + "; the victim got its own answer"


@attack
def names_of_calls_that_are_guessed():
    """5,000 guessed ids in cancellations, and what the server calls 200 requests."""
    serve = Serve(stdio(FOLDING, args=["go"]))
    for number in range(200):
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "mine", "arguments": {}, "_meta": MODERN}}
        serve.ask(modern(body, "mine"))
    until("all names", lambda: serve.log().count("understood tools/call") == 200)
    ids = [line.split("understood tools/call ")[1].split(" ")[0] for line in serve.log().splitlines() if "understood tools/call" in line]
    numbers = sorted(int(one) for one in ids)
    assert len(set(numbers)) == 200 and all(1 <= one < 2**31 for one in numbers), numbers
    gaps = [after - before for before, after in zip(numbers, numbers[1:])]
    assert max(numbers) > 2**28 and gaps.count(1) < 3, numbers
    return f"200 names between {min(numbers)} and {max(numbers)}, {gaps.count(1)} beside each other"


@attack
def sessions_of_other_principals():
    """Session ids of another user of a front, of another token, of another route, and invented ones."""
    servers = 'trusted_proxies = ["127.0.0.1"]\nprincipal = "header:x-user"'
    serve = Serve(stdio() + stdio(path="/b"), server=servers)
    session = begin(serve, headers=["X-User: ada"])
    own = [f"Mcp-Session-Id: {session}"]
    tried = 0
    for headers in [["X-User: bob"], [], ["X-User:"], ["X-User: Ada"], ["X-User: ada "[:-1] + "x"], ["X-User: bob", "X-Forwarded-For: 127.0.0.1"]]:
        for text in [post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}), headers=own + headers),
                     get("/a", serve.port, own + headers + ["Accept: text/event-stream"]),
                     get("/a", serve.port, own + headers, "DELETE"),
                     get("/a", serve.port, own + headers + ["Accept: text/event-stream", "Last-Event-ID: 1-1"])]:
            status, _ = serve.ask(text, wait=3)
            assert status == 404, (headers, text[:40], status)
            tried += 1
    for headers in [["X-User: ada", "X-User: bob"], ["X-User: bob", "X-User: ada"], ["X-User: " + "a" * 2000]]:
        assert serve.ask(post(INITIALIZE, headers=headers))[0] == 400
    assert serve.ask(post("{}", "/b", own + ["X-User: ada"]))[0] in (400, 404)
    for invented in [session[:-1], session + "0", session.upper(), "", "0", "../" + session, session[::-1]]:
        status, _ = serve.ask(call(1, session=invented or "x", headers=["X-User: ada"]))
        assert status == 404 or invented == session, (invented, status)
        tried += 1
    assert serve.ask(call(2, session=session, headers=["X-User: ada"]))[0] == 200
    assert session not in serve.log()
    return f"{tried} tries, 404 each; the owner's call is answered, and no log has the id"


@attack
def sessions_that_a_server_checks():
    """The session of a client with a token, for a client with another one and for one without."""
    def handle(made, head, body):
        said = json.loads(body) if body else {}
        if b"bearer one" not in head.lower():
            made.sendall(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        elif "id" not in said:
            made.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        else:
            text = json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {},
                               "serverInfo": {"name": "s", "version": "1"}, "content": []}}).encode()
            made.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s1\r\ncontent-length: %d\r\n\r\n%s"
                         % (len(text), text))
    upstream = Upstream(handle)
    serve = Serve(route(upstream))
    one = ["Authorization: Bearer one"]
    session = begin(serve, headers=one)
    for headers in [["Authorization: Bearer two"], [], ["Authorization: Basic b25l"]]:
        assert serve.ask(call(1, session=session, headers=headers))[0] == 401
    assert serve.ask(call(2, session=session, headers=one))[0] == 200
    assert b"bearer one" not in serve.log().lower().encode()
    return "401 of the server each; the owner's call is answered"


@attack
def isolation_of_the_same_ids():
    """60 clients with the same id and token on one shared server: each must get its own answer."""
    serve = Serve(stdio(FOLDING, args=["python"]))
    wrong = []

    def client(number):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": f"tool{number}", "arguments": {}, "_meta": {**MODERN, "progressToken": 1}}}
        for _ in range(5):
            _, got = serve.ask(modern(body, f"tool{number}"))
            if f"answer to tool{number}\"".encode() not in got:
                wrong.append(got[:300])
    threads = [threading.Thread(target=client, args=[number]) for number in range(60)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert not wrong, wrong[:2]
    assert len(serve.children()) <= 2
    return "300 answers, each to its own client, of one child"


@attack
def long_batches():
    """Arrays of 90,000 messages, of requests and of what is none, for servers of both kinds."""
    upstream = Upstream()
    told = []
    for name, text in [("HTTP", route(upstream)), ("stdio", stdio()), ("shared stdio", stdio())]:
        serve = Serve(text)
        more = [f"Mcp-Session-Id: {begin(serve)}"] if name == "stdio" else []
        if name == "shared stdio":
            more = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: t"]
        batch = ['{"jsonrpc":"2.0","id":%d,"method":"x"}' % number for number in range(90_000)]
        used = serve.cpu()
        status, got = serve.ask(post("[" + ",".join(batch) + "]", headers=more), wait=30)
        status2, _ = serve.ask(post("[" + "1," * 500_000 + "1]", headers=more), wait=30)
        used = serve.cpu() - used
        # A program without optimisation needs ten times as much.
        assert used < 8, f"{name}: {used:.1f} s of CPU"
        if name != "HTTP":
            assert b"-32600" in got, got[:300]
        told.append(f"{name}: {status}, {status2}, {used:.2f} s of CPU")
    return "; ".join(told)


@attack
def deep_and_ugly_json():
    """Nesting of 200,000 levels, numbers without end, half signs, and NUL in names."""
    serve = Serve(stdio())
    session = begin(serve)
    used = serve.cpu()
    for text in ["[" * 200_000, '{"a":' * 200_000, '{"jsonrpc":"2.0","id":' + "9" * 1_000_000 + ',"method":"x"}',
                 '{"jsonrpc":"2.0","id":1e999999,"method":"tools/call"}', '{"jsonrpc":"2.0","id":"\\ud800","method":"tools/call"}',
                 '{"jsonrpc":"2.0","id":1,"method":"tools/call\\u0000"}', '{"jsonrpc":"2.0","id":1,"method":"' + "a" * 1_000_000 + '"}',
                 '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":' + "[" * 10_000 + "]" * 10_000 + "}}}",
                 '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"' + "t" * 1_000_000 + '"}}}', "\x00" * 1000, "\ufeff{}"]:
        serve.ask(post(text, headers=[f"Mcp-Session-Id: {session}"]), wait=2)
    used = serve.cpu() - used
    assert used < 5 and serve.process.poll() is None, used
    return f"{used:.2f} s of CPU; another client waited {serve.is_served() * 1000:.0f} ms"


@attack
def calls_that_are_left():
    """3,000 calls whose clients leave at once, on a route for 500 streams."""
    serve = Serve(stdio(more="max_streams = 500"))
    session = begin(serve)
    before, refused = serve.resident(), 0
    for number in range(3000):
        with serve.open() as made:
            made.sendall(call(number, "slow", number, session).encode())
            if number > 2000 and number % 100 == 0:
                refused += answer_of(made)[0] == 503
    grown = serve.resident() - before
    assert refused and grown < 64, (refused, grown)
    status, _ = serve.ask(post(INITIALIZE))
    assert serve.ask(get("/livez", serve.admin), serve.admin)[0] == 200 and status == 503
    return f"503 beyond 500 calls, {grown:.1f} MB more, operators are served (a new session: {status})"


@attack
def sessions_and_children_of_one_client():
    """400 sessions of one user, each with a child, and 200 starts in a row."""
    serve = Serve(stdio(), server='trusted_proxies = ["127.0.0.1"]\nprincipal = "header:x-user"')
    statuses = [serve.ask(post(INITIALIZE, headers=["X-User: eve"]))[0] for _ in range(200)]
    most = len(serve.children())
    assert statuses.count(200) <= 32 and most <= 40 and 429 in statuses, (statuses.count(200), most)
    assert serve.ask(post(INITIALIZE, headers=["X-User: ada"]))[0] == 200
    by_token = [serve.ask(post(INITIALIZE, headers=["Authorization: Bearer eve"]))[0] for _ in range(100)]
    assert by_token.count(200) <= 32, by_token.count(200)
    return f"{statuses.count(200)} sessions by name, {by_token.count(200)} by token, then 429; another user is served"


@attack
def streams_that_nobody_reads():
    """300 clients that open a stream of events and read nothing, while the server sends 20 MB to each session."""
    text = SERVER.replace('print(json.dumps({"jsonrpc": "2.0", "id"', '''if name == "flood":
        for n in range(2000):
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 10000}}), flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id"''')
    serve = Serve(stdio(text))
    before, made = serve.resident(), []
    for number in range(5):
        session = begin(serve)
        for _ in range(10):
            one = serve.open()
            one.sendall(get("/a", serve.port, [f"Mcp-Session-Id: {session}", "Accept: text/event-stream"]).encode())
            made.append(one)
        one = serve.open()
        one.sendall(call(number, "flood", 1, session).encode())
        made.append(one)
    time.sleep(6)
    grown = serve.resident() - before
    assert grown < 160, f"{grown:.0f} MB"
    return f"{grown:.0f} MB more for 100 MB that nobody reads; another client waited {serve.is_served() * 1000:.0f} ms"


@attack
def terminals_of_operators():
    """Escapes, signs that turn text around and ends of lines in names of tools, for `tap`, `doctor` and `stats`."""
    import subprocess
    import tools
    evil = "\x1b]0;evil\x07\x1b[2J\u202eloot\u2066\x9b31m\r\nforged"
    text = SERVER.replace('"tools": []', '"tools": [{"name": %s, "description": %s, "inputSchema": {"type": "object"}}]'
                          % (json.dumps(evil), json.dumps(evil))).replace('"name": "s"', f'"name": {json.dumps(evil)}')
    serve = Serve(stdio(text))
    session = begin(serve)
    tap = subprocess.Popen([tools.PROGRAM, "tap", "--config", str(serve.file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env={"PATH": "/usr/bin:/bin", "HOME": str(serve.folder)}, stdin=subprocess.DEVNULL)
    tools.RUNNING.append(tap)
    time.sleep(1)
    for number in range(3):
        serve.ask(call(number, evil, evil, session))
    time.sleep(1)
    tap.terminate()
    shown = {"tap": tap.communicate(timeout=10)[0]}
    command = [tools.PROGRAM, "doctor", "--", "python3", "-c", text]
    shown["doctor"] = subprocess.run(command, capture_output=True, timeout=60).stdout
    shown["stats"] = subprocess.run([tools.PROGRAM, "stats", "--state-dir", str(serve.folder / "state")], capture_output=True, timeout=20).stdout
    for name, output in shown.items():
        for sign in [b"\x1b]", b"\x1b[2J", b"\x07", b"\xc2\x9b", "\u202e".encode(), "\u2066".encode(), b"\rforged"]:
            at = output.find(sign)
            assert at < 0, (name, output[max(0, at - 60):at + 60])
        assert not any(line.startswith(b"forged") for line in output.splitlines()), name
    return ", ".join(f"{name}: {len(output)} bytes" for name, output in shown.items()) + ", no escape"
