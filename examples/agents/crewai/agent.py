"""CrewAI with Milepost in front of a server.

    pip install -r examples/agents/crewai/requirements.txt
    python3 examples/agents/crewai/agent.py
"""

from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters

SERVER = StdioServerParameters(command="milepost", args=["wrap", "--", "python3", "examples/agents/server.py"])

with MCPServerAdapter(SERVER) as tools:
    print([tool.name for tool in tools])
    print(tools["report"].run(seconds=3))
