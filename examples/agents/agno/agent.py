"""Agno with Milepost in front of a server.

    pip install -r examples/agents/agno/requirements.txt
    python3 examples/agents/agno/agent.py
"""

import asyncio

from agno.tools.function import FunctionCall
from agno.tools.mcp import MCPTools


async def main():
    # A call has 10 s by default. Agno starts only a program whose name is on PATH.
    command = "milepost wrap -- python3 examples/agents/server.py"
    async with MCPTools(command, timeout_seconds=300) as tools:
        print(list(tools.functions))
        print(await FunctionCall(function=tools.functions["report"], arguments={"seconds": 3}).aexecute())


asyncio.run(main())
