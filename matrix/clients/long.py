"""Long calls with the Python SDK or FastMCP: long.py mcp|fastmcp URL|CMD TIMES EDGE. See long.mjs."""

import asyncio
import json
import logging
import sys
from contextlib import asynccontextmanager

logging.disable(logging.CRITICAL)


@asynccontextmanager
async def connected(kind, address):
    shell = {"command": "sh", "args": ["-c", f"exec {address}"]}
    is_url = address.startswith("http")
    if kind == "fastmcp":
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        async with Client(address if is_url else StdioTransport(**shell)) as client:
            yield client
        return
    from mcp.client.stdio import StdioServerParameters, stdio_client

    try:
        from mcp import Client
    except ImportError:
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        transport = streamablehttp_client(address) if is_url else stdio_client(StdioServerParameters(**shell))
        async with transport as (reader, writer, *_):
            async with ClientSession(reader, writer) as session:
                await session.initialize()
                yield session
    else:
        async with Client(address if is_url else stdio_client(StdioServerParameters(**shell))) as client:
            yield client


async def once(kind, client, key, steps):
    async def show(*_):
        pass

    name = "progress_handler" if kind == "fastmcp" else "progress_callback"
    try:
        await client.call_tool("play", {"key": key, "steps": steps}, **{name: show})
        return True
    except Exception:  # the outcome is all that counts
        return False


async def main(kind, address, times, edge):
    async with connected(kind, address) as client:
        print("connected", flush=True)

        async def both(seconds):
            beats = [{"wait": 5000, "progress": at + 1, "message": "working"} for at in range(seconds // 5)]
            beats.append({"wait": edge * 1000, "do": "answer"})
            talking, silent = await asyncio.gather(
                once(kind, client, "talking", beats),
                once(kind, client, "silent", [{"wait": (seconds + edge) * 1000, "do": "answer"}]),
            )
            print(json.dumps({seconds: {"talking": talking, "silent": silent}}), flush=True)

        await asyncio.gather(*(both(int(seconds)) for seconds in times.split(",")))


asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
