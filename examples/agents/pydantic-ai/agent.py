"""Pydantic AI with Milepost in front of a server.

    pip install -r examples/agents/pydantic-ai/requirements.txt
    python3 examples/agents/pydantic-ai/agent.py
"""

import asyncio

from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

SERVER = StdioTransport(command="milepost", args=["wrap", "--", "python3", "examples/agents/server.py"])


async def show(progress, total, message):
    print(f"{progress} of {total}: {message}")


async def main():
    async with MCPToolset(SERVER, progress_handler=show) as tools:
        print([tool.name for tool in await tools.list_tools()])
        print(await tools.direct_call_tool("report", {"seconds": 3}))


asyncio.run(main())
