"""A server made with the Python SDK 1.1, over stdio. Tools: see ../README.md.

That SDK has no decorators for tools with arguments and no context: this is how its documentation did it.
"""

import anyio
import mcp.server.stdio
from mcp import types
from mcp.server import Server

server = Server("milepost-py11-server")


@server.list_tools()
async def tools():
    return [types.Tool(name="steps", description="Reports steps", inputSchema={"type": "object"})]


@server.call_tool()
async def call(name, arguments):
    context = server.request_context
    token = context.meta.progressToken if context.meta else None
    count, pause = arguments.get("count", 3), arguments.get("ms", 50) / 1000
    for step in range(1, count + 1):
        await anyio.sleep(pause)
        if token is not None:
            await context.session.send_progress_notification(token, step, arguments.get("total"))
    await anyio.sleep(pause)
    return [types.TextContent(type="text", text=f"{count} steps done")]


async def main():
    async with mcp.server.stdio.stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
