"""Attacks on memory: bodies that need more than their bytes, and bodies that wait."""
import json
import threading
import time

from tools import MODERN, Serve, attack, post, stdio

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
