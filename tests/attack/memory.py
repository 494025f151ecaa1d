"""Attacks on memory: bodies that need more than their bytes, and bodies that wait."""
import json
import threading
import time

from tools import INITIALIZE, MODERN, SERVER, Serve, attack, call, post, stdio

# It reads nothing.
UNREADING = "import time\ntime.sleep(600)\n"
BUDGET = "max_kept_bytes = 67_108_864\nmax_unread_bytes = 67_108_864\n"


def grown(serve, before, seconds=2):
    """The most megabytes in this time that are more than before."""
    most = 0
    for _ in range(int(seconds * 10)):
        time.sleep(0.1)
        most = max(most, serve.resident() - before)
    return most


@attack
def bodies_of_many_values():
    """Ten bodies at once of 1.7 MB of tiny values, which readers may keep as something twenty times as large."""
    lists = "[" + ",".join(["[]"] * 566_000) + "]"
    members = "{" + ",".join(f'"{n}":0' for n in range(170_000)) + "}"
    most = 0
    for filler in [lists, members, '{"a":' + lists + "}"]:
        for method in ["initialize", "tools/list", "server/discover"]:
            meta = {} if method == "initialize" else {**MODERN, "io.modelcontextprotocol/clientCapabilities": "FILLER"}
            params = {"protocolVersion": "2025-06-18", "capabilities": {} if meta else "FILLER",
                      "clientInfo": {"name": "c", "version": "1"}, "_meta": meta}
            text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).replace('"FILLER"', filler)
            headers = ["MCP-Protocol-Version: 2026-07-28", f"Mcp-Method: {method}"] if meta else []
            serve = Serve(stdio(UNREADING))
            before = serve.resident()
            held = [serve.open() for _ in range(10)]
            for one in held:
                threading.Thread(target=one.sendall, args=(post(text, headers=headers).encode(),), daemon=True).start()
            most = max(most, grown(serve, before) / (len(text) / 1e6) / 10)
            serve.process.kill()
            serve.process.wait()
    assert most < 10, most
    return f"at most {most:.1f} times their bytes"


@attack
def bodies_before_a_server_that_does_not_read():
    """Requests of 3.9 MB before a server that never reads."""
    serve = Serve(stdio(UNREADING), server=BUDGET)
    before = serve.resident()
    params = {"name": "work", "arguments": {"x": "x" * 3_900_000}}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": MODERN}})
    headers = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: work"]
    held = [serve.open() for _ in range(60)]
    for one in held:
        threading.Thread(target=one.sendall, args=(post(text, headers=headers).encode(),), daemon=True).start()
    most = grown(serve, before, 5)
    refused = serve.metric("milepost_bodies_refused_total")
    assert refused >= 40, refused
    assert most < 3 * 67, most
    return f"60 of 3.9 MB: {most:.0f} MB, {refused:.0f} refused"


# Answers with a megabyte, and progress ahead: calls of `late` three seconds after the first.
LARGE = SERVER.replace("import json, sys\n", "import json, sys, time\n").replace('"text": "for " + str(said["id"])', '"text": "x" * 1_000_000').replace(
    "    result = {", '''    if name:
        due = globals().get("due") or time.time() + 3
        time.sleep(max(0, due - time.time()) if name == "late" else 0)
        token = said["params"].get("_meta", {}).get("progressToken")
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}), flush=True)
    result = {''', 1)
USERS = 'trusted_proxies = ["127.0.0.1"]\nprincipal = "header:x-user"\n'


def sessions_of(serve, count):
    """Sessions of 2025-11-25, whose events have ids, each of another user: the headers of each."""
    made = []
    for number in range(count):
        user = [f"X-User: user{number}"]
        status, got = serve.ask(post(INITIALIZE.replace("2025-06-18", "2025-11-25"), headers=user))
        assert status == 200, got[:300]
        line = next(line for line in got.split(b"\r\n") if line.lower().startswith(b"mcp-session-id:"))
        made.append([*user, "Mcp-Session-Id: " + line.split(b":", 1)[1].strip().decode(), "MCP-Protocol-Version: 2025-11-25"])
    return made


@attack
def answers_that_were_taken():
    """20 answers of 1 MB in each of eight sessions that are idle then: each was taken, and may be asked for again."""
    serve = Serve(stdio(LARGE), server=BUDGET + USERS)
    sessions = sessions_of(serve, 8)
    before, ids = serve.resident(), 0
    for number in range(20):
        for headers in sessions:
            status, got = serve.ask(call(number, token=number + 1, headers=headers))
            assert status == 200 and len(got) > 1_000_000, (status, len(got))
            ids += b"\nid: " in got
    grown = serve.resident() - before
    assert ids == 160, ids
    assert grown < 2 * 67, f"{grown:.0f} MB"
    # A session that has taken much is answered on.
    assert serve.ask(call(99, token=99, headers=sessions[0]))[0] == 200
    return f"160 of 1 MB: {grown:.0f} MB more, with room for 67 MB"


@attack
def answers_that_come_too_late():
    """160 calls whose clients leave after a second, with answers of 1 MB two seconds later, that wait for their clients."""
    serve = Serve(stdio(LARGE, "late = {}"), server=BUDGET + USERS + "max_client_children = 0\n")
    sessions = sessions_of(serve, 8)
    before, left = serve.resident(), []
    for headers in sessions:
        for number in range(20):
            one = serve.open()
            body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
                "name": "late", "arguments": {"n": number}, "_meta": {"progressToken": number}}}
            one.sendall(post(json.dumps(body), headers=headers).encode())
            left.append((one, number, headers))
    time.sleep(1.2)
    for one, number, headers in left:
        gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number, "reason": "Request timed out"}}
        serve.ask(post(json.dumps(gone), headers=headers))
        one.close()
    most = grown(serve, before, 5)
    kept = serve.metric("milepost_late_calls_total", 'event="finished"')
    assert kept > 20, kept
    assert most < 2 * 67, f"{most:.0f} MB"
    body = {"jsonrpc": "2.0", "id": 500, "method": "tools/call", "params": {"name": "late", "arguments": {"n": 19}, "_meta": {"progressToken": 500}}}
    status, got = serve.ask(post(json.dumps(body), headers=sessions[0]))
    assert status == 200 and len(got) > 1_000_000, (status, got[:300])
    fetched = serve.metric("milepost_late_calls_total", 'event="fetched"')
    return f"160 of 1 MB: {most:.0f} MB more, with room for 67 MB; {kept:.0f} waited, {fetched:.0f} was asked for again"
