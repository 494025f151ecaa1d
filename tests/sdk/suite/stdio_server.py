"""The conformance server of the Python SDK on its standard streams: stdio_server.py FOLDER, where its package is."""

import sys

sys.path.insert(0, sys.argv[1])

from mcp_everything_server.server import mcp  # noqa: E402

if __name__ == "__main__":
    mcp.run("stdio")
