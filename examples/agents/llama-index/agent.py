"""LlamaIndex with Milepost in front of a server.

    pip install -r examples/agents/llama-index/requirements.txt
    python3 examples/agents/llama-index/agent.py
"""

import asyncio

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


async def main():
    # A call has 30 s by default.
    client = BasicMCPClient("milepost", args=["wrap", "--", "python3", "examples/agents/server.py"], timeout=300)
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client=client).to_tool_list_async()}
    print(list(tools))
    print(await tools["report"].acall(seconds=3))


asyncio.run(main())
