"""A server made with the Python SDK 1.x, over stdio. Tools: see ../README.md."""

import anyio
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("milepost-py1-server", log_level="ERROR")


@server.tool()
async def steps(ctx: Context, count: int = 3, ms: float = 50, total: float | None = None) -> str:
    for step in range(1, count + 1):
        await anyio.sleep(ms / 1000)
        await ctx.report_progress(step, total, f"step {step}")
    await anyio.sleep(ms / 1000)
    return f"{count} steps done"


@server.tool()
async def quiet(ms: float = 1000) -> str:
    await anyio.sleep(ms / 1000)
    return f"quiet for {ms:g} ms"


@server.tool()
async def burst(ctx: Context) -> str:
    await ctx.report_progress(100, 100, "done")
    return "burst done"


@server.tool()
async def big(bytes: int = 1000) -> str:
    return "x" * bytes


@server.tool()
async def ask(ctx: Context) -> str:
    await ctx.session.send_ping()
    return "the client answered the ping"


server.run("stdio")
