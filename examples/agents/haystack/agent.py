"""Haystack with Milepost in front of a server.

    pip install -r examples/agents/haystack/requirements.txt
    python3 examples/agents/haystack/agent.py
"""

from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo

SERVER = StdioServerInfo(command="milepost", args=["wrap", "--", "python3", "examples/agents/server.py"])

# A call has 30 s by default.
toolset = MCPToolset(SERVER, invocation_timeout=300, eager_connect=True)
tools = {tool.name: tool for tool in toolset}
print(list(tools))
print(tools["report"].invoke(seconds=3))
toolset.close()
