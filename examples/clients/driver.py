"""A driver for `milepost check-progress --client`, of the official Python SDK 1.x or 2.x.

    pip install mcp
    milepost check-progress --client --driver 'python3 examples/clients/driver.py {url} {tool}'
"""

import asyncio
import json
import logging
import sys
from contextlib import asynccontextmanager

report = {"client": "driver.py", "calls": [], "errors": []}


class Complaints(logging.Handler):
    """The SDK logs what it cannot use."""

    def emit(self, record):
        report["errors"].append(record.getMessage()[:200])


@asynccontextmanager
async def connected(url):
    """A session, whichever generation of the SDK is installed."""
    try:
        from mcp import Client
    except ImportError:
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        async with streamablehttp_client(url) as (reader, writer, *_):
            async with ClientSession(reader, writer) as session:
                await session.initialize()
                yield session
    else:
        async with Client(url) as client:
            yield client


async def call(client, tool):
    entry = {"tool": tool, "outcome": "result", "progress": [], "error": None}
    report["calls"].append(entry)

    async def show(progress, total, message):
        entry["progress"].append([progress, total, message])

    try:
        await client.call_tool(tool, {}, progress_callback=show)
    except Exception as error:  # whatever the SDK raises is the outcome
        entry.update(outcome="error", error=str(error))


async def main(url, tool):
    async with connected(url) as client:
        for name in (tool, "correct"):
            await call(client, name)


logging.getLogger().addHandler(Complaints(logging.WARNING))
asyncio.run(main(*sys.argv[1:3]))
print(json.dumps(report))
