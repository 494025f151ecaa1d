"""A client made with langchain-mcp-adapters: a session for the list of tools, and one for each call."""

import os
import sys
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp import ClientSession, McpError, types
from mcp.shared._httpx_utils import create_mcp_http_client

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
import driver  # noqa: E402

REQUEST_TIMEOUT = 408  # the SDK borrows HTTP's

# Whose progress it is: the callback is told the tool only. Each session runs in the context of its call.
on_progress_of_call = ContextVar("on_progress_of_call", default=None)


async def on_progress(progress, total, message, _context):
    if on_progress_of_call.get():
        await on_progress_of_call.get()(progress, total, message)


class Connected:
    server_version = protocol = None

    def __init__(self):
        self.tools = {}

    async def call(self, tool, args, _timeout, on_progress):
        on_progress_of_call.set(on_progress)
        request = {"type": "tool_call", "id": "1", "name": tool, "args": args}
        message = await self.tools[tool].ainvoke(request)
        return {"content": message.content, "isError": message.status == "error"}


def connection(options, report):
    session = {"message_handler": report.on_message}
    if options.timeout is not None:
        session["read_timeout_seconds"] = timedelta(seconds=options.timeout)
    if options.command:
        stdio = {"transport": "stdio", "command": options.command, "args": options.args, "env": dict(os.environ)}
        return stdio | {"session_kwargs": session}
    return {
        "transport": "sse" if options.sse else "http",
        "url": options.sse or options.url,
        "headers": options.headers,
        "httpx_client_factory": driver.watched(create_mcp_http_client, report),
        "session_kwargs": session,
    }


@asynccontextmanager
async def connect(options, report):
    if options.protocol:
        types.LATEST_PROTOCOL_VERSION = options.protocol  # what the SDK asks for; it has no option
    connected = Connected()
    initialize = ClientSession.initialize

    async def noting(session):
        init = await initialize(session)
        connected.server_version = init.serverInfo.model_dump(by_alias=True, mode="json", exclude_none=True)
        connected.protocol = str(init.protocolVersion)
        return init

    ClientSession.initialize = noting
    callbacks = Callbacks(on_progress=on_progress) if options.progress else None
    client = MultiServerMCPClient({"server": connection(options, report)}, callbacks=callbacks)
    connected.tools = {tool.name: tool for tool in await client.get_tools()}
    yield connected


def is_timeout(error):
    return isinstance(error, McpError) and error.error.code == REQUEST_TIMEOUT


if __name__ == "__main__":
    driver.run("langchain", connect, is_timeout)
