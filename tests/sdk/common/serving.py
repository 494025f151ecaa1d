"""What the Python servers share: the command line, the tools, the end.

See ../README.md.
"""

import argparse
import os
import socket
import sys
import threading

import anyio


def options(*flags):
    """The command line; `flags` are those of `--json`, `--stateless` and `--sse` that the server has."""
    parser = argparse.ArgumentParser(prog="server", allow_abbrev=False)
    parser.add_argument("--http", metavar="PORT", type=int)
    parser.add_argument("--deadline", metavar="S", type=float, default=600)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    found = parser.parse_args()
    if found.http is None and any(getattr(found, flag[2:]) for flag in flags):
        parser.error("without --http the server speaks stdio")
    return found


def serve(app, path, found):
    """Serves an ASGI application until whoever started this ends, or the deadline comes."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", found.http))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)

    def end():
        os._exit(0)

    def end_with_stdin():
        while sys.stdin.buffer.read1():
            pass
        end()

    threading.Thread(target=end_with_stdin, daemon=True).start()
    deadline = threading.Timer(found.deadline, end)
    deadline.daemon = True
    deadline.start()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


def add_tools(server, Context):
    """Registers the tools. The SDK finds its context by the type of a parameter."""

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
    async def big(bytes: int = 1000, ms: float = 0) -> str:
        await anyio.sleep(ms / 1000)
        return "x" * bytes

    @server.tool()
    async def ask(ctx: Context) -> str:
        await ctx.session.send_ping()
        return "the client answered the ping"
