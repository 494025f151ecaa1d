"""A client made with the Python SDK 1.x."""

import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
import driver  # noqa: E402

REQUEST_TIMEOUT = 408  # the SDK borrows HTTP's


class Connected:
    def __init__(self, session, init):
        self.session = session
        self.server_version = init.serverInfo.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.protocol = str(init.protocolVersion)

    async def call(self, tool, args, timeout, on_progress):
        limit = None if timeout is None else timedelta(seconds=timeout)
        return await self.session.call_tool(tool, args, read_timeout_seconds=limit, progress_callback=on_progress)


@asynccontextmanager
async def connect(options, env, message_handler):
    server = StdioServerParameters(command=options.command, args=options.args, env=env)
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, message_handler=message_handler) as session:
            yield Connected(session, await session.initialize())


def is_timeout(error):
    return isinstance(error, McpError) and error.error.code == REQUEST_TIMEOUT


driver.run("py1", connect, is_timeout)
