"""smolagents with Milepost in front of a server.

    pip install -r examples/agents/smolagents/requirements.txt
    python3 examples/agents/smolagents/agent.py
"""

from mcp import StdioServerParameters
from smolagents import MCPClient

SERVER = StdioServerParameters(command="milepost", args=["wrap", "--", "python3", "examples/agents/server.py"])

with MCPClient(SERVER, structured_output=True) as tools:
    tools = {tool.name: tool for tool in tools}
    print(list(tools))
    print(tools["report"](seconds=3))
