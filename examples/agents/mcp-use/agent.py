"""mcp-use with Milepost in front of a server.

    pip install -r examples/agents/mcp-use/requirements.txt
    python3 examples/agents/mcp-use/agent.py
"""

import asyncio

from mcp_use import MCPClient

SERVER = {"command": "milepost", "args": ["wrap", "--", "python3", "examples/agents/server.py"]}


async def main():
    client = MCPClient({"mcpServers": {"reports": SERVER}})
    session = await client.create_session("reports")
    print([tool.name for tool in await session.list_tools()])
    print(await session.call_tool("report", {"seconds": 3}))
    await client.close_all_sessions()


asyncio.run(main())
