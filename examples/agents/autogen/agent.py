"""AutoGen with Milepost in front of a server.

    pip install -r examples/agents/autogen/requirements.txt
    python3 examples/agents/autogen/agent.py
"""

import asyncio

from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

ARGS = ["wrap", "--", "python3", "examples/agents/server.py"]


async def main():
    # A call has 5 s by default.
    async with McpWorkbench(StdioServerParams(command="milepost", args=ARGS, read_timeout_seconds=300)) as bench:
        print([tool["name"] for tool in await bench.list_tools()])
        print(await bench.call_tool("report", {"seconds": 3}))


asyncio.run(main())
