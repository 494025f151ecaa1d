"""OpenAI Agents with Milepost in front of a server.

    pip install -r examples/agents/openai-agents/requirements.txt
    python3 examples/agents/openai-agents/agent.py
"""

import asyncio

from agents.mcp import MCPServerStdio

SERVER = {"command": "milepost", "args": ["wrap", "--", "python3", "examples/agents/server.py"]}


async def main():
    # A call has 5 s by default.
    async with MCPServerStdio(params=SERVER, client_session_timeout_seconds=300) as server:
        print([tool.name for tool in await server.list_tools()])
        print(await server.call_tool("report", {"seconds": 3}))


asyncio.run(main())
