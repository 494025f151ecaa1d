"""A client made with the Python SDK 2.x."""

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import mcp.client.session
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import REQUEST_TIMEOUT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

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

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]


@asynccontextmanager
async def transport(options, report):
    new_client = driver.watched(create_mcp_http_client, report)
    if options.sse:
        yield sse_client(options.sse, headers=options.headers, httpx_client_factory=new_client)
    elif options.url:
        async with new_client(headers=options.headers) as http:
            yield streamable_http_client(options.url, http_client=http)
    else:
        yield StdioServerParameters(command=options.command, args=options.args, env=dict(os.environ))


def mode(options):
    """What the SDK is to do about the protocol version; it has no option for an old one."""
    if options.protocol is None:
        return {"mode": options.negotiate} if options.negotiate else {}
    if options.protocol in MODERN_PROTOCOL_VERSIONS:
        return {"mode": options.protocol}
    mcp.client.session.LATEST_HANDSHAKE_VERSION = options.protocol
    return {"mode": options.negotiate or "legacy"}


@asynccontextmanager
async def connect(options, report):
    async with transport(options, report) as server:
        async with Client(server, message_handler=report.on_message, **mode(options)) as client:
            yield Connected(client)


def is_timeout(error):
    return isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT and "timed out" in str(error).lower()


if __name__ == "__main__":
    driver.run("py2", connect, is_timeout)
