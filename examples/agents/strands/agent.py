"""Strands Agents with Milepost in front of a server.

    pip install -r examples/agents/strands/requirements.txt
    python3 examples/agents/strands/agent.py
"""

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from strands.tools.mcp import MCPClient

SERVER = StdioServerParameters(command="milepost", args=["wrap", "--", "python3", "examples/agents/server.py"])


async def show(progress, total, message):
    print(f"{progress} of {total}: {message}")


with MCPClient(lambda: stdio_client(SERVER), progress_callback=show) as client:
    print([tool.tool_name for tool in client.list_tools_sync()])
    print(client.call_tool_sync("1", "report", {"seconds": 3}))
