"""Secrets in every place, while all logs are on: who reads logs, recordings, exports and errors must not learn them."""
import json
import os
import stat
import subprocess
import time

import tools
from tools import SERVER, Serve, Upstream, answer_json, attack, begin, call, folder, get, post, python, route, stdio, until, INITIALIZE


def ran(*command, environment=None):
    """All that a command of the program prints."""
    place = folder()
    known = {"PATH": os.environ["PATH"], "HOME": str(place), "TMPDIR": str(place)}
    done = subprocess.run([tools.PROGRAM, *command], capture_output=True, timeout=60, stdin=subprocess.DEVNULL,
                          env={**known, **(environment or {})})
    return (done.stdout + done.stderr).decode(errors="replace")


# A route file whose every secret is a word of its own.
FULL = '''
[server]
listen = "127.0.0.1:0"
bearer = "hidden-bearer-000001"
[admin]
listen = "127.0.0.1:0"
bearer = "hidden-admin-000002"
[fleet]
key = ["{key}"]
listen = "127.0.0.1:0"
advertise = "127.0.0.1:1"
store = "redis://user:hidden-store-000003@127.0.0.1:1/0"
[[route]]
path = "/a"
upstream.url = "http://user:hidden-user-000004@127.0.0.1:1/mcp?api_key=hidden-query-000005"
upstream.proxy = "http://user:hidden-proxy-000006@127.0.0.1:1"
headers.request.set = {{ authorization = "Bearer hidden-set-000007", x-api-key = "hidden-key-000008" }}
[[route]]
path = "/b"
upstream.command = ["server", "--password", "hidden-argument-000009", "--token=hidden-argument-000010"]
upstream.env = {{ API_TOKEN = "hidden-variable-000011" }}
'''.format(key="5e" * 32)
WORDS = [word.strip('",}]') for word in FULL.replace("=", " ").replace(":", " ").replace("@", " ").split() if word.startswith(('"hidden', "hidden"))]


def faults():
    """The file with one fault in each line that has a secret: as people break files."""
    lines = FULL.splitlines()
    for at, line in enumerate(lines):
        if "hidden" not in line and "5e5e" not in line:
            continue
        key, value = line.split(" = ", 1)
        quote = line.rindex('"')
        for broken in [line[:quote] + line[quote + 1:], line.replace('"', "", 1), key + " == " + value, key + " " + value,
                       key + " = [[" + value + "]]", key + " = { x = " + value + " }", line + "\n" + line, key + "x = " + value,
                       line.replace(" = ", " = \\", 1), line + " and more", f"{key}.y = {value}", line.replace('"', "'", 1), line + "\x07",
                       line.replace("hidden", "hidd\\qen", 1), line.replace('"', '"""', 1)]:
            yield "\n".join(lines[:at] + [broken] + lines[at + 1:])


@attack
def secrets_in_errors_of_route_files():
    """A file with twelve secrets and one fault in the line of one: `check`, `check --print`, `serve` and `wrap --config`."""
    place = folder()
    file = place / "proxy.toml"
    tried = 0
    for text in [FULL, *faults()]:
        file.write_text(text)
        os.chmod(file, 0o600)
        for command in [["check", str(file)], ["check", "--print", str(file)], ["check", "--json", str(file)]]:
            shown = ran(*command)
            tried += 1
            for word in [*WORDS, "5e" * 32, "hidden-"]:
                assert word not in shown, (command[:2], word, [line for line in text.splitlines() if word in line][:2], shown[-700:])
    return f"{tried} outputs of {tried // 3} files"


@attack
def secrets_in_logs_at_trace():
    """Secrets of clients, routes and servers in headers, addresses, arguments and answers, with the log at `trace`."""
    def handle(made, head, body):
        said = json.loads(body or b"{}")
        if said.get("method") == "tools/call" and "id" in said:
            events = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nset-cookie: s=hidden-cookie-2\r\n\r\n"
            notice = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "password=hidden-data-1 Bearer hidden-data-2"}}
            answer = {"jsonrpc": "2.0", "id": said["id"], "result": {"content": [{"type": "text", "text": "token: hidden-text-1"}]}}
            made.sendall(events + b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in [notice, answer]))
            raise OSError("done")
        answer_json(made, head, body)
    upstream = Upstream(handle)
    place = folder()
    (place / "token").write_text("hidden-file-1\n")
    os.chmod(place / "token", 0o600)
    noisy = SERVER.replace("for line in sys.stdin:", "sys.stderr.write('api_key=hidden-noise-1 password: hidden-noise-2 Authorization: Bearer hidden-noise-3\\n')\nfor line in sys.stdin:", 1)
    noisy = noisy.replace('    sys.stderr.write("asked " + line)\n', "")
    routes = route(upstream).replace("/mcp\"", "/mcp?api_key=hidden-query-1\"")
    routes += 'headers.request.set = { authorization = { bearer_file = "%s" }, x-api-key = "hidden-set-1" }\n' % (place / "token")
    routes += stdio(noisy, 'upstream.env = { API_TOKEN = "hidden-env-1" }', "/b", ["--password", "hidden-arg-1", "--token=hidden-arg-2"])
    told = []
    for level in ["trace", "debug"]:
        serve = Serve(routes, server='bearer = "hidden-bearer-1"', admin='bearer = "hidden-admin-1"', environment={"MILEPOST_LOG": level})
        own = ["Authorization: Bearer hidden-bearer-1", "Cookie: session=hidden-cookie-1", "X-Api-Key: hidden-header-1",
               "Proxy-Authorization: Basic hidden-basic-1", "Mcp-Session-Id: hidden-session-1"]
        for path in ["/a?token=hidden-path-1", "/b?token=hidden-path-1", "/nowhere?token=hidden-path-1"]:
            serve.ask(post(INITIALIZE, path, own), wait=4)
        session = begin(serve, "/b", own[:3])
        arguments = {"password": "hidden-param-1", "note": "Bearer hidden-param-2", "url": "https://u:hidden-param-3@h/?api_key=hidden-param-4"}
        for path in ["/a", "/b"]:
            body = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "t", "arguments": arguments, "_meta": {"progressToken": 1}}})
            serve.ask(post(body, path, [*own[:4], f"Mcp-Session-Id: {session}"]), wait=4)
        for wrong in ["Bearer hidden-wrong-1", "Basic hidden-wrong-2", "hidden-wrong-3"]:
            serve.ask(post(INITIALIZE, headers=[f"Authorization: {wrong}"]))
            serve.ask(get("/calls?token=hidden-wrong-4", serve.admin, [f"Authorization: {wrong}"]), serve.admin)
        serve.ask(post(INITIALIZE, "/a", ["Authorization: Bearer hidden-bearer-1", "Host: hidden-host-1"]))
        serve.ask("POST /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hidden-broken-1\r\nContent-Length: x\r\n\r\n", wait=2)
        time.sleep(0.5)
        serve.process.terminate()
        serve.process.wait(20)
        log = serve.log()
        for line in log.splitlines():
            # The words of a caller about a host are no secret.
            assert "hidden-" not in line or "hidden-host" in line, line
        assert session not in log
        told.append(f"{len(log.splitlines())} lines at {level}")
    return ", ".join(told)


@attack
def secrets_in_recordings_and_exports():
    """The same secrets in messages, in a recording, in its exports, and in what `replay`, `diff` and `tap` show."""
    noisy = SERVER.replace('"text": "for " + str(said["id"])', '"text": "token=hidden-text-1 Authorization: Bearer hidden-text-2 https://u:hidden-text-3@h"')
    noisy = noisy.replace('    sys.stderr.write("asked " + line)\n', '    sys.stderr.write("password=hidden-noise-1\\n")\n')
    place = folder()
    records = place / "records"
    records.mkdir()
    serve = Serve(stdio(noisy), options=["--record", str(records)])
    tap = subprocess.Popen([tools.PROGRAM, "tap", "--config", str(serve.file), "--json"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env={"PATH": "/usr/bin:/bin", "HOME": str(serve.folder)}, stdin=subprocess.DEVNULL)
    tools.RUNNING.append(tap)
    time.sleep(1)
    session = begin(serve, headers=["Authorization: Bearer hidden-header-1", "Cookie: s=hidden-header-2"])
    arguments = {"password": "hidden-param-1", "apiKey": "hidden-param-2", "note": "Authorization: Bearer hidden-param-3", "deep": {"client_secret": ["hidden-param-4"]},
                 "url": "https://u:hidden-param-5@h/?access_token=hidden-param-6", "text": "{\"password\":\"hidden-param-7\"}", "PASSWORD": {"x": "hidden-param-8"}}
    for number in range(3):
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "t", "arguments": arguments, "_meta": {"progressToken": 1}}})
        serve.ask(post(body, headers=["Authorization: Bearer hidden-header-1", f"Mcp-Session-Id: {session}"]))
    time.sleep(0.5)
    tap.terminate()
    shown = {"tap": tap.communicate(timeout=10)[0].decode(errors="replace")}
    serve.process.terminate()
    serve.process.wait(20)
    files = [one for one in records.rglob("*") if one.is_file()]
    assert files
    for file in files:
        shown[file.name] = file.read_text(errors="replace")
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
        for kind in ["har", "html"]:
            shown[f"{kind} of {file.name}"] = ran("export", "--to", kind, str(file))
        shown[f"replay of {file.name}"] = ran("replay", str(file))
        shown[f"test of {file.name}"] = ran("replay", "--as-test", str(file))
        shown[f"diff of {file.name}"] = ran("diff", "--tolerance", "off", str(file), str(file))
    for name, text in shown.items():
        found = sorted({word[:15] for word in text.split("hidden-")[1:]})
        assert not found, (name, found, text[max(0, text.find("hidden-") - 200):][:300])
        assert session not in text, name
    return f"{len(shown)} outputs, {sum(map(len, shown.values()))} bytes, none with a secret"
