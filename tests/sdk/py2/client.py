"""A client made with the Python SDK 2.x."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import REQUEST_TIMEOUT

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
import driver  # noqa: E402


class Connected:
    def __init__(self, client):
        self.client = client
        info = client.server_info
        self.server_version = info and info.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.protocol = client.protocol_version

    async def call(self, tool, args, timeout, on_progress):
        return await self.client.call_tool(tool, args, read_timeout_seconds=timeout, progress_callback=on_progress)


@asynccontextmanager
async def connect(options, env, message_handler):
    server = StdioServerParameters(command=options.command, args=options.args, env=env)
    mode = {"mode": options.negotiate} if options.negotiate else {}
    async with Client(server, message_handler=message_handler, **mode) as client:
        yield Connected(client)


def is_timeout(error):
    return isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT and "timed out" in str(error).lower()


driver.run("py2", connect, is_timeout)
