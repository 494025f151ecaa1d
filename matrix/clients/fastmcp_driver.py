"""A driver of the client of FastMCP, in the form of examples/clients/driver.py."""

import asyncio
import json
import sys

from fastmcp import Client

report = {"client": "fastmcp", "calls": [], "errors": []}


async def main(url, tool):
    async with Client(url) as client:
        for name in (tool, "correct"):
            entry = {"tool": name, "outcome": "result", "progress": [], "error": None}
            report["calls"].append(entry)

            async def show(progress, total, message, entry=entry):
                entry["progress"].append([progress, total, message])

            try:
                await client.call_tool(name, {}, progress_handler=show)
            except Exception as error:  # whatever the SDK raises is the outcome
                entry.update(outcome="error", error=str(error))


asyncio.run(main(*sys.argv[1:3]))
print(json.dumps(report))
