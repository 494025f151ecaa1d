"""python python-sdk-progress-on-get.py, with `mcp` 1.x installed: which stream carries the progress of a POST?"""

import asyncio
import http.client
import json
import socket
import threading
import time
from importlib.metadata import version

from mcp.server.fastmcp import Context, FastMCP

with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
server = FastMCP("s", host="127.0.0.1", port=PORT, log_level="ERROR")


@server.tool()
async def t(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3)
        await asyncio.sleep(0.1)
    return "done"


threading.Thread(target=server.run, args=("streamable-http",), daemon=True).start()
counts = {"POST": 0, "GET": 0}


def request(method, body=None, session=None, name=None):
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if session:
        headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
    connection.request(method, "/mcp", json.dumps(body) if body else None, headers)
    response = connection.getresponse()
    if name:
        try:
            for line in response:
                counts[name] += line.startswith(b"data:") and b"notifications/progress" in line
        except TimeoutError:
            pass  # the GET stream has no end
    return response.headers.get("mcp-session-id")


for _ in range(100):
    try:
        socket.create_connection(("127.0.0.1", PORT)).close()
        break
    except OSError:
        time.sleep(0.1)
first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
session = request("POST", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": first})
request("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
listener = threading.Thread(target=request, args=("GET", None, session, "GET"))
listener.start()
time.sleep(0.5)
call = {"name": "t", "arguments": {}, "_meta": {"progressToken": "token"}}
request("POST", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, session, "POST")
listener.join()
print(f"mcp {version('mcp')}: of 3 notifications {counts['POST']} came on the response of the call, {counts['GET']} on the GET stream")
