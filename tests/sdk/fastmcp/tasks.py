"""The client of FastMCP runs calls of an old server as tasks, through Milepost.

    python tests/sdk/fastmcp/tasks.py [MILEPOST]

Needs `fastmcp` and `fastmcp-tasks` of one version. Prints what the client got of each call, over standard streams and over
HTTP; ends with 1 if anything is not as expected.
"""

import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")

from fastmcp import Client  # noqa: E402
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport  # noqa: E402
from fastmcp_tasks import call_tool_task  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MILEPOST = sys.argv[1] if len(sys.argv) > 1 else str(HERE.parents[2] / "target/debug/milepost")
SERVER = [sys.executable, str(HERE.parent / "suite/working_server.py")]
AFTER = "200ms"


async def accept(message, response_type, params, context):
    return {"confirm": True}


async def run(transport):
    found = {}
    async with Client(transport, elicitation_handler=accept) as client:
        task = await call_tool_task(client, "slow_compute", {"seconds": 1})
        found["status"] = (await task.status()).status
        found["result"] = (await task.result()).content[0].text
        stopped = await call_tool_task(client, "slow_compute", {"seconds": 60})
        await stopped.cancel()
        found["cancelled"] = (await stopped.status()).status
        # The client makes a plain call, and waits for the task that comes of it.
        found["plain"] = (await client.call_tool("slow_compute", {"seconds": 1})).content[0].text
    return found


EXPECTED = {"status": "working", "result": "computed", "cancelled": "cancelled", "plain": "computed"}


def main():
    wrap = StdioTransport(MILEPOST, ["wrap", "--modern", "--tasks", "--tasks-after", AFTER, "--", *SERVER])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        command = json.dumps(SERVER)
        file.write(
            f'[server]\nlisten = "127.0.0.1:{port}"\n[[route]]\npath = "/mcp"\nupstream.command = {command}\n'
            f'modern = true\ntasks = {{ after = "{AFTER}" }}\n'
        )
        file.flush()
        proxy = subprocess.Popen([MILEPOST, "serve", "--no-socket", file.name], stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            bad = False
            for name, transport in [("wrap", wrap), ("serve", StreamableHttpTransport(f"http://127.0.0.1:{port}/mcp"))]:
                began = time.monotonic()
                found = asyncio.run(asyncio.wait_for(run(transport), 60))
                print(f"{name}: {found}, {time.monotonic() - began:.1f} s")
                bad |= found != EXPECTED
            return 1 if bad else 0
        finally:
            proxy.terminate()
            proxy.wait()


def wait_for(port):
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{MILEPOST} does not listen on port {port}")


if __name__ == "__main__":
    sys.exit(main())
