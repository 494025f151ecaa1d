"""Google ADK with Milepost in front of a server.

    pip install -r examples/agents/adk/requirements.txt
    python3 examples/agents/adk/agent.py
"""

import asyncio

from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters

SERVER = StdioServerParameters(command="milepost", args=["wrap", "--", "python3", "examples/agents/server.py"])


async def show(progress, total, message):
    print(f"{progress} of {total}: {message}")


async def main():
    # A call has 5 s by default: `timeout` is for the start of the server and for each call.
    where = StdioConnectionParams(server_params=SERVER, timeout=300)
    toolset = McpToolset(connection_params=where, progress_callback=show)
    tools = {tool.name: tool for tool in await toolset.get_tools()}
    print(list(tools))
    print(await tools["report"].run_async(args={"seconds": 3}, tool_context=await context()))
    await toolset.close()


async def context():
    """The context that an agent gives its tools; here there is no agent and no model."""
    from google.adk.agents import LlmAgent
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools.tool_context import ToolContext

    service = InMemorySessionService()
    session = await service.create_session(app_name="example", user_id="example")
    agent = LlmAgent(name="example")
    return ToolContext(InvocationContext(session_service=service, invocation_id="1", agent=agent, session=session))


asyncio.run(main())
