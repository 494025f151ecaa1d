"""What a server is told when a client of the Python SDK gives a call up by its time-out. See the page beside this file."""

import asyncio
import sys
import tempfile
from datetime import timedelta
from importlib.metadata import version

SERVER = r'''
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print(message["method"], file=sys.stderr, flush=True)
    results = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}},
               "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}}
    # The call is never answered.
    if message["method"] in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
    elif message["method"] == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}}), flush=True)
'''


async def main(heard):
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(command=sys.executable, args=["-c", SERVER])
    try:
        from mcp import Client
    except ImportError:
        from mcp import ClientSession

        async with stdio_client(parameters, errlog=heard) as (reader, writer):
            async with ClientSession(reader, writer) as session:
                await session.initialize()
                await call(session, read_timeout_seconds=timedelta(seconds=1))
    else:
        async with Client(stdio_client(parameters, errlog=heard)) as client:
            await call(client, read_timeout_seconds=1)


async def call(session, **limit):
    try:
        await session.call_tool("work", {}, **limit)
    except Exception as error:
        print(f"the client: {error}")
    await asyncio.sleep(0.5)


with tempfile.TemporaryFile("w+") as heard:
    asyncio.run(main(heard))
    heard.seek(0)
    told = heard.read().split()
print(f"mcp {version('mcp')}, the server was told: {', '.join(told[told.index('tools/call'):])}")
