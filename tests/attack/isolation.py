"""Attacks on what belongs to others: kept answers, running work, names of users, the last descriptors."""
import json
import resource
import threading
import time

from tools import INITIALIZE, SERVER, Serve, Upstream, attack, begin, call, get, post, python, route, stdio, until

# Its name is its variable `WHO`; it has a resource of each user that has logged in.
NAMED = SERVER.replace("import json, sys\n", "import json, os, sys\nusers = []\n").replace(
    '"name": "s"', '"name": os.environ["WHO"]').replace(
    '"capabilities": {}', '"capabilities": {"tools": {}, "resources": {"listChanged": True}}').replace(
    '"tools": []', '"tools": [], "resources": [{"uri": "user:" + one, "name": one} for one in users]').replace(
    "    result = {", '    if name == "login":\n        users.append(said["params"]["arguments"].get("user", "?"))\n    result = {', 1)
LIST = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "resources/list"})


def kept(serve):
    return list((serve.folder / "state" / "starts").glob("*.json"))


@attack
def answers_of_other_starts():
    """Routes with one command and other variables, and sessions of other users, where answers of the last start are kept."""
    routes = "".join(f'[[route]]\npath = "/{who}"\nupstream.command = {python(NAMED)}\nupstream.env = {{ WHO = "{who}" }}\n'
                     "cached_start = true\n" for who in ["one", "two", "three"])
    serve = Serve(routes)
    for _ in range(2):
        for who in ["one", "two", "three"]:
            _, got = serve.ask(post(INITIALIZE, f"/{who}"))
            assert f'"{who}"'.encode() in got, got[-300:]
            time.sleep(0.5)
    session = begin(serve, "/one")
    login = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "login", "arguments": {"user": "ada"}}}
    serve.ask(post(json.dumps(login), "/one", [f"Mcp-Session-Id: {session}"]))
    _, got = serve.ask(post(LIST, "/one", [f"Mcp-Session-Id: {session}"]))
    assert b"user:ada" in got, got[-300:]
    time.sleep(1)
    for _ in range(5):
        other = begin(serve, "/one")
        _, got = serve.ask(post(LIST, "/one", [f"Mcp-Session-Id: {other}"]))
        assert b"user:ada" not in got, got[-300:]
    return f"{len(kept(serve))} kept starts; nobody got what was another's"


@attack
def work_of_other_calls():
    """Calls that differ from running work in one member, or that two readers read differently."""
    serve = Serve(stdio(more="late = {}"))
    session = begin(serve)
    named = [f"Mcp-Session-Id: {session}"]
    others = ['"name": "slow", "arguments": {}, "_meta": {"user": "eve"}', '"name": "slow", "arguments": {}, "as": "root"',
              '"name": "slow", "arguments": {"user": "ada"}, "arguments": {}', '"name": "slow", "name": "slow", "arguments": {}',
              '"name": "slow", "arguments": {"a": %s}' % ("[" * 300 + "]" * 300)]
    said = lambda: serve.log().count('\\"tools/call\\"') + serve.log().count('"tools/call"')
    for number, other in enumerate(others):
        before = said()
        for place, params in enumerate(['"name": "slow", "arguments": {}', other]):
            body = f'{{"jsonrpc": "2.0", "id": {10 * number + place}, "method": "tools/call", "params": {{{params}}}}}'
            one = serve.open()
            one.sendall(post(body, headers=named).encode())
            until(f"asked for {params:.60}", lambda: said() > before + place, 5)
            gone = {"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": 10 * number + place, "reason": "Request timed out"}}
            serve.ask(post(json.dumps(gone), headers=named))
    return f"{len(others)} kinds of other calls joined nothing"


@attack
def names_in_other_spellings():
    """Headers that CGI, WSGI and PHP read as the user's or the client's, and the form that the front does not write."""
    server = Upstream()
    serve = Serve(route(server, 'forwarded = "append"'),
                  server='trusted_proxies = ["127.0.0.1"]\nprincipal = "header:x-user"\nfront_header = "x-forwarded-for"\n')
    sent = [f"{name}: evil" for name in ["X_User", "x_user", "X.User", "X!User", "X_USER"]]
    sent += [f"{name}: evil" for name in ["X_Forwarded_For", "X-Forwarded_For", "X_Forwarded-Proto", "X_FORWARDED_HOST"]]
    sent += ["Forwarded: for=evil"]
    for line in sent:
        status, _ = serve.ask(post(INITIALIZE, headers=["X-User: ada", line]))
        assert status == 200, (line, status)
        assert b"evil" not in server.text(), line
    assert b"ada" in server.text()
    return f"{len(sent)} spellings reached no server"


@attack
def last_descriptors():
    """Calls that hold every descriptor of the process, while operators ask whether it lives."""
    held = threading.Event()
    server = Upstream(lambda made, head, body: held.wait(60))
    serve = Serve(route(server), server="raise_descriptors = false\n")
    resource.prlimit(serve.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    made = []
    for number in range(190):
        one = serve.open()
        one.sendall(call(number).encode())
        made.append(one)
    time.sleep(2)
    most = serve.descriptors()
    assert most >= 170, most
    for _ in range(50):
        status, _ = serve.ask(get("/livez", serve.admin), serve.admin, wait=5)
        assert status == 200, status
    held.set()
    for one in made:
        one.close()
    time.sleep(2)
    said = serve.log().count("no connection can be accepted")
    assert said == 1, said
    assert serve.ask(get("/nowhere", serve.port))[0] == 404
    return f"{most} of 200 descriptors in use; 50 of 50 probes were answered"
