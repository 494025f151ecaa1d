"""A server on standard streams whose tool runs as a task of 2025-11-25 and fails with words. See the page beside this file."""

import json
import sys
import time

TASK = {"taskId": "one", "ttl": 60000, "pollInterval": 500, "createdAt": "2026-11-25T12:00:00Z", "lastUpdatedAt": "2026-11-25T12:00:00Z"}
WORDS = "the disk is full: 3 of 40 files were copied"
began = None


def answer(method, params):
    global began
    if method == "initialize":
        tasks = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": tasks}, "serverInfo": {"name": "copier", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "copy", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}]}
    result = {"content": [{"type": "text", "text": WORDS}], "isError": True}
    if method == "tools/call" and "task" in params:
        began = time.monotonic()
        return {"task": {**TASK, "status": "working"}}
    if method == "tools/call":
        return result
    is_over = began is not None and time.monotonic() - began > 1
    if method == "tasks/get":
        return {**TASK, "status": "failed" if is_over else "working"}
    if method == "tasks/result":
        time.sleep(0 if is_over else 1)
        return {**result, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "one"}}}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps(message), file=sys.stderr, flush=True)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
