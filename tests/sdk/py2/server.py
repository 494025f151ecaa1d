"""A server made with the Python SDK 2.x, over stdio or HTTP. Tools: see ../README.md."""

import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
from serving import add_tools, options, serve  # noqa: E402

found = options("--json", "--stateless", "--sse")
server = MCPServer("milepost-py2-server", log_level="ERROR")
add_tools(server, Context)

if found.http is None:
    server.run("stdio")
elif found.sse:
    serve(server.sse_app(), "/sse", found)
else:
    serve(server.streamable_http_app(json_response=found.json, stateless_http=found.stateless), "/mcp", found)
