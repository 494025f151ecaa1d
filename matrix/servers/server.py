"""A server as the documentation of FastMCP and of the Python SDK has it, on standard streams."""

import asyncio
import sys

if sys.argv[1] == "fastmcp":
    from fastmcp import Context
    from fastmcp import FastMCP as Server
else:
    try:
        from mcp.server.mcpserver import Context
        from mcp.server.mcpserver import MCPServer as Server
    except ImportError:
        from mcp.server.fastmcp import Context
        from mcp.server.fastmcp import FastMCP as Server

server = Server("matrix-python")


@server.tool()
async def work(ctx: Context) -> str:
    for step in range(1, 4):
        await asyncio.sleep(0.15)
        await ctx.report_progress(step, 3)
    await asyncio.sleep(0.15)
    return "done"


if sys.argv[1] == "fastmcp" and "show_banner" in server.run.__code__.co_varnames:
    server.run(show_banner=False)
else:
    server.run()
