"""A server made with the Python SDK 1.x, over stdio or HTTP. Tools: see ../README.md.

`py128` runs it as well, with an older version of the SDK.
"""

import sys
from pathlib import Path

from mcp.server.fastmcp import Context, FastMCP

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
from serving import add_tools, options, serve  # noqa: E402

found = options("--json", "--stateless", "--sse")
server = FastMCP("milepost-py1-server", log_level="ERROR", json_response=found.json, stateless_http=found.stateless)
add_tools(server, Context)

if found.http is None:
    server.run("stdio")
elif found.sse:
    serve(server.sse_app(), "/sse", found)
else:
    serve(server.streamable_http_app(), "/mcp", found)
