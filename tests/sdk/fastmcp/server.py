"""A server made with the standalone FastMCP, over stdio or HTTP. Tools: see ../README.md."""

import os
import sys
from pathlib import Path

os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")  # read when it is imported

from fastmcp import Context, FastMCP  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
from serving import add_tools, options, serve  # noqa: E402

found = options("--json", "--stateless", "--sse")
server = FastMCP("milepost-fastmcp-server")
add_tools(server, Context)

if found.http is None:
    server.run("stdio", show_banner=False)
elif found.sse:
    serve(server.http_app(path="/sse", transport="sse"), "/sse", found)
else:
    serve(server.http_app(path="/mcp", json_response=found.json, stateless_http=found.stateless), "/mcp", found)
