"""Semantic Kernel with Milepost in front of a server.

    pip install -r examples/agents/semantic-kernel/requirements.txt
    python3 examples/agents/semantic-kernel/agent.py
"""

import asyncio

from semantic_kernel.connectors.mcp import MCPStdioPlugin

ARGS = ["wrap", "--", "python3", "examples/agents/server.py"]


async def main():
    async with MCPStdioPlugin(name="reports", command="milepost", args=ARGS, load_prompts=False) as plugin:
        print([tool.name for tool in (await plugin.session.list_tools()).tools])
        print(await plugin.call_tool("report", seconds=3))


asyncio.run(main())
