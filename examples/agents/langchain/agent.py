"""LangChain with Milepost in front of a server.

    pip install -r examples/agents/langchain/requirements.txt
    python3 examples/agents/langchain/agent.py
"""

import asyncio

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient

SERVER = {"transport": "stdio", "command": "milepost", "args": ["wrap", "--", "python3", "examples/agents/server.py"]}


async def show(progress, total, message, context):
    print(f"{progress} of {total}: {message}")


async def main():
    client = MultiServerMCPClient({"reports": SERVER}, callbacks=Callbacks(on_progress=show))
    tools = {tool.name: tool for tool in await client.get_tools()}
    print(list(tools))
    print(await tools["report"].ainvoke({"seconds": 3}))


asyncio.run(main())
