"""The MCP clients of the Python frameworks, each as an asynchronous context: it connects, lists the tools as the
framework does, and yields `call(tool, arguments)`, which answers with what the framework gives its agent.

`server` has `command` (a list) or `url`. `patience` is None for the defaults of the framework; otherwise it has `seconds`,
the longest time of a call, and `show(progress, total, message)`, for frameworks that take such settings. Each framework is
imported where it is used, because each is installed in an environment of its own.
"""

import asyncio
from contextlib import asynccontextmanager


def stdio(server):
    """The parameters of the Python SDK for a server that is started by its command."""
    from mcp import StdioServerParameters

    return StdioServerParameters(command=server.command[0], args=server.command[1:])


@asynccontextmanager
async def openai_agents(server, patience):
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

    limit = {"client_session_timeout_seconds": patience.seconds} if patience else {}
    if server.url:
        made = MCPServerStreamableHttp(params={"url": server.url}, **limit)
    else:
        made = MCPServerStdio(params={"command": server.command[0], "args": server.command[1:]}, **limit)
    async with made as connected:
        await connected.list_tools()
        yield connected.call_tool


@asynccontextmanager
async def langchain(server, patience):
    from langchain_mcp_adapters.callbacks import Callbacks
    from langchain_mcp_adapters.client import MultiServerMCPClient

    async def show(progress, total, message, _context):
        patience.show(progress, total, message)

    if server.url:
        entry = {"transport": "streamable_http", "url": server.url}
    else:
        entry = {"transport": "stdio", "command": server.command[0], "args": server.command[1:]}
    client = MultiServerMCPClient({"reports": entry}, callbacks=Callbacks(on_progress=show) if patience else None)
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(name, arguments):
        return await tools[name].ainvoke(arguments)

    yield call


@asynccontextmanager
async def llama_index(server, patience):
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    limit = {"timeout": patience.seconds} if patience else {}
    where = [server.url] if server.url else [server.command[0], server.command[1:]]
    client = BasicMCPClient(*where, **limit)
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client=client).to_tool_list_async()}

    async def show(progress, total, message):
        patience.show(progress, total, message)

    async def call(name, arguments):
        # The tools of an agent take no callback.
        if patience:
            return await client.call_tool(name, arguments, progress_callback=show)
        return await tools[name].acall(**arguments)

    yield call


@asynccontextmanager
async def pydantic_ai(server, patience):
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    async def show(progress, total, message):
        patience.show(progress, total, message)

    settings = {"progress_handler": show} if patience else {}
    where = server.url or StdioTransport(command=server.command[0], args=server.command[1:])
    async with MCPToolset(where, **settings) as tools:
        await tools.list_tools()
        yield tools.direct_call_tool


@asynccontextmanager
async def adk(server, patience):
    from google.adk.agents import LlmAgent
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
    from google.adk.tools.tool_context import ToolContext

    async def show(progress, total, message):
        patience.show(progress, total, message)

    limit = {"timeout": patience.seconds} if patience else {}
    if server.url:
        where = StreamableHTTPConnectionParams(url=server.url, **limit)
    else:
        where = StdioConnectionParams(server_params=stdio(server), **limit)
    toolset = McpToolset(connection_params=where, progress_callback=show if patience else None)
    service = InMemorySessionService()
    session = await service.create_session(app_name="trial", user_id="trial")
    invocation = InvocationContext(
        session_service=service, invocation_id="trial", agent=LlmAgent(name="trial"), session=session
    )
    tools = {tool.name: tool for tool in await toolset.get_tools()}

    async def call(name, arguments):
        return await tools[name].run_async(args=arguments, tool_context=ToolContext(invocation))

    try:
        yield call
    finally:
        await toolset.close()


@asynccontextmanager
async def crewai(server, _patience):
    from crewai_tools import MCPServerAdapter

    where = {"url": server.url, "transport": "streamable-http"} if server.url else stdio(server)
    with MCPServerAdapter(where) as tools:

        async def call(name, arguments):
            return await asyncio.to_thread(tools[name].run, **arguments)

        yield call


@asynccontextmanager
async def autogen(server, patience):
    from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams

    if server.url:
        limit = {"timeout": patience.seconds} if patience else {}
        where = StreamableHttpServerParams(url=server.url, **limit)
    else:
        limit = {"read_timeout_seconds": patience.seconds} if patience else {}
        where = StdioServerParams(command=server.command[0], args=server.command[1:], **limit)
    async with McpWorkbench(where) as bench:
        await bench.list_tools()
        yield bench.call_tool


@asynccontextmanager
async def semantic_kernel(server, _patience):
    from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin

    if server.url:
        plugin = MCPStreamableHttpPlugin(name="reports", url=server.url, load_prompts=False)
    else:
        command, args = server.command[0], server.command[1:]
        plugin = MCPStdioPlugin(name="reports", command=command, args=args, load_prompts=False)
    async with plugin:

        async def call(name, arguments):
            return await plugin.call_tool(name, **arguments)

        yield call


@asynccontextmanager
async def haystack(server, patience):
    from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo

    limit = {"invocation_timeout": patience.seconds} if patience else {}
    if server.url:
        where = StreamableHttpServerInfo(url=server.url)
    else:
        where = StdioServerInfo(command=server.command[0], args=server.command[1:])
    toolset = await asyncio.to_thread(lambda: MCPToolset(where, eager_connect=True, **limit))
    tools = {tool.name: tool for tool in toolset}

    async def call(name, arguments):
        return await asyncio.to_thread(tools[name].invoke, **arguments)

    try:
        yield call
    finally:
        toolset.close()


@asynccontextmanager
async def strands(server, patience):
    from mcp.client.stdio import stdio_client
    from strands.tools.mcp import MCPClient

    async def show(progress, total, message):
        patience.show(progress, total, message)

    settings = {"progress_callback": show} if patience else {}
    if server.url:
        client = MCPClient(url=server.url, **settings)
    else:
        client = MCPClient(lambda: stdio_client(stdio(server)), **settings)
    with client:
        await asyncio.to_thread(client.list_tools_sync)

        async def call(name, arguments):
            return await client.call_tool_async("trial", name, arguments)

        yield call


@asynccontextmanager
async def agno(server, patience):
    import shlex

    from agno.tools.function import FunctionCall
    from agno.tools.mcp import MCPTools

    limit = {"timeout_seconds": patience.seconds} if patience else {}
    if server.url:
        made = MCPTools(url=server.url, transport="streamable-http", **limit)
    else:
        made = MCPTools(shlex.join(server.command), **limit)
    async with made as tools:

        async def call(name, arguments):
            execution = FunctionCall(function=tools.functions[name], arguments=arguments)
            return await execution.aexecute()

        yield call


@asynccontextmanager
async def smolagents(server, _patience):
    from smolagents import MCPClient

    where = {"url": server.url, "transport": "streamable-http"} if server.url else stdio(server)
    client = await asyncio.to_thread(MCPClient, where, structured_output=True)
    tools = {tool.name: tool for tool in client.get_tools()}

    async def call(name, arguments):
        return await asyncio.to_thread(tools[name], **arguments)

    try:
        yield call
    finally:
        await asyncio.to_thread(client.disconnect)


@asynccontextmanager
async def mcp_use(server, _patience):
    from mcp_use import MCPClient

    entry = {"url": server.url} if server.url else {"command": server.command[0], "args": server.command[1:]}
    client = MCPClient({"mcpServers": {"reports": entry}})
    try:
        session = await client.create_session("reports")
        await session.list_tools()
        yield session.call_tool
    finally:
        await client.close_all_sessions()


IS_SYNCHRONOUS = {"crewai", "haystack", "smolagents"}
"""Frameworks whose calls run in a thread that nobody can interrupt: an application cannot cancel their calls."""

CLIENTS = {
    client.__name__.replace("_", "-"): client
    for client in (
        openai_agents, langchain, llama_index, pydantic_ai, adk, crewai, autogen, semantic_kernel, haystack, strands,
        agno, smolagents, mcp_use,
    )
}
