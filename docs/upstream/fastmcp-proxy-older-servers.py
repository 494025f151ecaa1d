"""What clients find behind the proxy of FastMCP, before a server that speaks no 2026-07-28. See the page beside this file."""

import asyncio
import json
import sys
import tempfile
from importlib.metadata import version

SERVER = r'''
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    results = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}},
               "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}}
    # As 2026-07-28 has it, a server without that revision does not know its requests.
    is_known = message["method"] in results and "io.modelcontextprotocol/protocolVersion" not in message.get("params", {}).get("_meta", {})
    answer = {"result": results[message["method"]]} if is_known else {"error": {"code": -32601, "message": "unknown"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
'''


async def main():
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport
    from fastmcp.server import create_proxy

    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(SERVER)
        file.flush()
        server = lambda: StdioTransport(sys.executable, [file.name])
        ways = {"directly": server(), "through the proxy": create_proxy(server())}
        for name, way in ways.items():
            for mode in ("legacy", "auto"):
                async with Client(way, mode=mode) as client:
                    tools = [tool.name for tool in await client.list_tools()]
                print(f"fastmcp {version('fastmcp')}, {name}, client {mode}: tools {json.dumps(tools)}")


asyncio.run(main())
