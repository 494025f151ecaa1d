"""Attacks on people who look on: the exported page, the live page, and the terminals of `try`, `top`, `tap` and `replay`."""
import fcntl
import html.parser
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import tools
from tools import SERVER, Serve, attack, begin, call, folder, get, post, stdio, until, INITIALIZE

MARKUP = ["</script><script>PWNED()</script>", "<img src=x onerror=PWNED()>", "\"><svg onload=PWNED()>", "'onmouseover='PWNED()", "<!--<script>",
          "]]><script>PWNED()</script>", "{{PWNED}}${PWNED}`PWNED`", "javascript:PWNED()", "</title></style></textarea><b>PWNED", "\u2028PWNED()\u2029",
          "&lt;script&gt;PWNED&#x28;", "<\u0000script>PWNED()", "\ufeff<script>PWNED()", "<SCRIPT/SRC=//evil>", "<a href=//evil>PWNED</a>"]
TURNS = "\u202ePWNED\u2066\u2067\u202d\u200f\u061c\u2069"
ESCAPES = ["\x1b]0;PWNED\x07", "\x1b[2J\x1b[H", "\x1b[31mPWNED", "\x1b]52;c;UFdORUQ=\x07", "\x1b]8;;http://evil\x07PWNED\x1b]8;;\x07", "\x1bP+q50574e4544\x1b\\",
           "\x9b2J", "\x9d0;PWNED\x9c", "\x1b[6n", "\x1b[5i", "\r\nPWNED", "\x08\x08PWNED", "\x7f\x00", "\x0e\x0f", "\u2028PWNED", "\x85PWNED"]
EVIL = "".join(MARKUP) + TURNS + "".join(ESCAPES)
# Signs that no program may write but those of Milepost's own screens.
FORBIDDEN = [b"PWNED\x07", b"\x1b]0;P", b"\x1b]52", b"\x1b]8;;http://evil", b"\x1bP+q", b"\xc2\x9b", b"\xc2\x9d", b"\x1b[6n", b"\x1b[5i", b"\x08\x08P", b"\x7f",
             b"\x0e", b"\x1b[31mPWNED", "\u202e".encode(), "\u2066".encode(), "\u202d".encode(), "\u200f".encode(), "\u061c".encode(), "\u2028".encode(), b"\xc2\x85"]


def evil_server(evil):
    """A server whose every word is hostile: its name, tools, progress, logs, results, errors, questions and noise."""
    return SERVER.replace("import json, sys\n", "import json, sys\nEVIL = %s\n" % json.dumps(evil).replace("${", "\\u0024{"), 1).replace('"name": "s", "version": "1"', '"name": EVIL, "version": EVIL, "title": EVIL').replace(
        '"tools": []', '"tools": [{"name": EVIL, "title": EVIL, "description": EVIL, "inputSchema": {"type": "object"}}, {"name": "t", "description": EVIL, "inputSchema": {"type": "object"}}], "instructions": EVIL').replace(
        '"text": "for " + str(said["id"])', '"text": EVIL').replace('    print(json.dumps({"jsonrpc": "2.0", "id"', '''    meta = said.get("params", {}).get("_meta", {})
    if said["method"] == "tools/call":
        sys.stderr.write("25% " + EVIL + "\\n" + EVIL + "\\n")
        sys.stderr.flush()
        for method, params in [("notifications/progress", {"progressToken": meta.get("progressToken"), "progress": 1, "total": 4, "message": EVIL}),
                               ("notifications/message", {"level": "info", "logger": EVIL, "data": EVIL}), (EVIL, {EVIL: EVIL})]:
            print(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}), flush=True)
        if name == "bad":
            print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "error": {"code": -1, "message": EVIL, "data": EVIL}}), flush=True)
            continue
    print(json.dumps({"jsonrpc": "2.0", "id"''')


def talk(serve, evil, count=2):
    """A session whose client has hostile words too."""
    client = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": evil, "version": evil}}})
    got = serve.ask(post(client))[1]
    session = next(line.split(b":", 1)[1].strip().decode() for line in got.split(b"\r\n") if line.lower().startswith(b"mcp-session-id:"))
    for number in range(count):
        for name, token in [("t", number + 1), (evil, evil), ("bad", f"{evil}{number}")]:
            serve.ask(call(number, name, token, session))
    return session


class Marks(html.parser.HTMLParser):
    """The elements of a page with the names of their attributes, and the values that can run."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.runs = set(), []

    def handle_starttag(self, tag, attrs):
        self.found.add((tag, tuple(sorted(name for name, _ in attrs))))
        self.runs += [value for name, value in attrs if name.startswith("on") or name in ("href", "src", "srcdoc", "action", "formaction")]

    def handle_comment(self, data):
        self.found.add(("comment", data[:20]))


def exported(evil):
    place = folder()
    records = place / "records"
    records.mkdir()
    serve = Serve(stdio(evil_server(evil), 'dialects = ["defaults", "stderr", "log"]'), options=["--record", str(records)])
    talk(serve, evil)
    serve.process.terminate()
    serve.process.wait(20)
    file = next(one for one in records.rglob("*") if one.is_file())
    return file, subprocess.run([tools.PROGRAM, "export", "--to", "html", str(file)], capture_output=True, timeout=60).stdout


@attack
def pages_of_recordings():
    """Markup, signs that turn text around and escapes in all names and words of a recording, as one page for a browser."""
    _, plain = exported("plain words")
    _, page = exported(EVIL)
    marks = []
    for text in [plain, page]:
        parser = Marks()
        parser.feed(text.decode())
        marks.append(parser)
    assert marks[1].found == marks[0].found, marks[1].found ^ marks[0].found
    assert marks[1].runs == marks[0].runs, marks[1].runs
    assert page.count(b"<script") == plain.count(b"<script") and page.count(b"</script") == plain.count(b"</script")
    assert b"<!--" not in page and b"]]>" not in page
    for sign in [*TURNS.replace("PWNED", ""), "\u2028", "\u2029", "\x1b", "\x07", "\x9b", "\x00", "\x85"]:
        at = page.find(sign.encode())
        assert at < 0, (repr(sign), page[max(0, at - 80):at + 20])
    policy = re.search(rb'http-equiv="?Content-Security-Policy"?\s+content="([^"]*)"', page, re.I)
    assert policy and b"default-src 'none'" in policy[1], page[:400]
    assert page.count(b"PWNED") > 20, "the page shows nothing of it"
    return f"{len(page)} bytes, {len(marks[0].found)} kinds of elements as without them; policy {policy[1].decode()[:40]}..."


@attack
def live_page():
    """The same words on the live page: what its stream sends, and how the page would show it."""
    serve = Serve(stdio(evil_server(EVIL), 'dialects = ["defaults", "stderr", "log"]'))
    token = [f"Authorization: Bearer {serve.token()}"]
    page = serve.ask(get("/", serve.admin, token), serve.admin)[1]
    head = page.split(b"\r\n\r\n")[0].lower()
    assert b"content-security-policy" in head, head
    policy = head.split(b"content-security-policy:")[1].split(b"\r\n")[0]
    assert b"default-src 'none'" in policy and b"unsafe-inline" not in policy.replace(b"style-src 'unsafe-inline'", b"") and b"frame-ancestors 'none'" in policy, policy
    assert b"nosniff" in head, head
    for way in [b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"eval(", b"new Function", b"DOMParser", b"srcdoc", b".setAttribute(\"on"]:
        assert way not in page, way
    streams = {}
    sockets = {}
    for path in ["/tap", "/calls"]:
        made = serve.open(serve.admin)
        made.sendall(get(path, serve.admin, token + ["Accept: text/event-stream"]).encode())
        sockets[path] = made
    time.sleep(0.3)
    for evil in [EVIL, TURNS, *ESCAPES]:
        talk(serve, evil, 1)
    time.sleep(1)
    for path, made in sockets.items():
        made.settimeout(1)
        got = b""
        try:
            while more := made.recv(1 << 16):
                got += more
        except OSError:
            pass
        streams[path] = got
        made.close()
    for path, got in streams.items():
        body = got.partition(b"\r\n\r\n")[2]
        # The page isolates text that turns, and `top` leaves it out. `curl` shows the lines of `/tap` as they are.
        for sign in [b"\x1b", b"\x07", b"\x00", *(FORBIDDEN if path == "/tap" else [])]:
            at = body.find(sign)
            assert at < 0, (path, sign, body[max(0, at - 100):at + 30])
    assert b"PWNED" in streams["/tap"], streams["/tap"][:500]
    return ", ".join(f"{path}: {len(got)} bytes" for path, got in streams.items()) + ", no sign that turns or steers; " + policy.decode().strip()[:40]


def in_terminal(command, environment, keys=b"", wait=4.0):
    """What a program writes to a terminal of 40 lines."""
    child, screen = pty.fork()
    if child == 0:
        os.environ.clear()
        os.environ.update({"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", **environment})
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        os.execv(command[0], command)
    shown, end, sent = b"", time.monotonic() + wait, False
    while time.monotonic() < end:
        if select.select([screen], [], [], 0.1)[0]:
            try:
                data = os.read(screen, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
        elif keys and not sent and time.monotonic() > end - wait / 2:
            os.write(screen, keys)
            sent = True
    try:
        os.kill(child, 9)
    except OSError:
        pass
    os.waitpid(child, 0)
    os.close(screen)
    return shown


@attack
def terminals_of_those_who_look_on():
    """The same words in `try`, `top`, `tap`, `replay`, `diff`, `check-progress` and the summary of `wrap`, on a terminal."""
    file, _ = exported(EVIL)
    text = evil_server(EVIL)
    held = text.replace('if name == "bad":', 'if name == "held":\n            continue\n        if name == "bad":')
    serve = Serve(stdio(held))
    session = talk(serve, EVIL, 1)
    own = {"HOME": str(serve.folder)}
    made = serve.open()
    made.sendall(call(77, "held", 77, session).encode())
    shown = {
        "top": in_terminal([tools.PROGRAM, "top", "--config", str(serve.file)], own, b"\r", 5),
        "try": in_terminal([tools.PROGRAM, "try", "--call", "t", "--", "python3", "-c", text], own, wait=6),
        "try an error": in_terminal([tools.PROGRAM, "try", "--call", "bad", "--", "python3", "-c", text], own, wait=6),
        "try by its list": in_terminal([tools.PROGRAM, "try", "--", "python3", "-c", text], own, b"1\r", wait=6),
        "replay": in_terminal([tools.PROGRAM, "replay", str(file)], own),
        "replay as a test": in_terminal([tools.PROGRAM, "replay", "--as-test", str(file)], own),
        "diff": in_terminal([tools.PROGRAM, "diff", "--tolerance", "off", str(file), str(exported("plain words")[0])], own),
        "stats": in_terminal([tools.PROGRAM, "stats", "--all", "--state-dir", str(serve.folder / "state")], own),
        "doctor": in_terminal([tools.PROGRAM, "doctor", "--", "python3", "-c", text], own, wait=15),
    }
    made.close()
    for name, output in shown.items():
        for sign in FORBIDDEN:
            at = output.find(sign)
            assert at < 0, (name, sign, output[max(0, at - 120):at + 40])
        assert not any(line.lstrip(b"\r").startswith(b"PWNED") for line in output.split(b"\n")), (name, output[:300])
    silent = [name for name, output in shown.items() if b"PWNED" not in output]
    return ", ".join(f"{name}: {len(output)}" for name, output in shown.items()) + f" bytes; without these words: {', '.join(silent) or 'none'}"
