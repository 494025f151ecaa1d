"""A client made with the Python SDK 1.x."""

import os
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

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

    async def tools(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]


@asynccontextmanager
async def streams(options, report):
    new_client = driver.watched(create_mcp_http_client, report)
    if options.sse:
        async with sse_client(options.sse, headers=options.headers, httpx_client_factory=new_client) as pair:
            yield pair
    elif options.url:
        async with new_client(headers=options.headers) as http:
            async with streamable_http_client(options.url, http_client=http) as (read, write, _):
                yield read, write
    else:
        server = StdioServerParameters(command=options.command, args=options.args, env=dict(os.environ))
        async with stdio_client(server) as pair:
            yield pair


@asynccontextmanager
async def connect(options, report):
    if options.protocol:
        types.LATEST_PROTOCOL_VERSION = options.protocol  # what the SDK asks for; it has no option
    async with streams(options, report) as (read, write):
        async with ClientSession(read, write, message_handler=report.on_message) as session:
            yield Connected(session, await session.initialize())


def is_timeout(error):
    return isinstance(error, McpError) and error.error.code == REQUEST_TIMEOUT


if __name__ == "__main__":
    driver.run("py1", connect, is_timeout)
