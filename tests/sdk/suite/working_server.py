"""A server of 2025-06-18 over stdio with the tools of the conformance suite's task scenarios. The server knows no tasks:
its calls take time, or ask their client.
"""

import itertools
import json
import sys
import threading

ids = itertools.count(1000)
lock = threading.Lock()
answers = {}
cancelled = {}


class ProtocolError(Exception):
    """What makes a call fail with an error in the place of a result."""


def write(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(message, name="confirm", kind="boolean"):
    """Asks the client; what is called gives its answer."""
    key = next(ids)
    answers[key] = done = [threading.Event(), None]
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    write({"id": key, "method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})

    def answer():
        done[0].wait()
        return (done[1].get("content") or {}).get(name)

    return answer


def slow_compute(arguments, stop):
    stop.wait(arguments.get("seconds", 1))
    return "computed"


def failing_job(arguments, stop):
    stop.wait(1)
    return None


def protocol_error_job(arguments, stop):
    stop.wait(1)
    raise ProtocolError("the job has broken")


def multi_input(arguments, stop):
    asked = [ask("First?", "first", "string"), ask("Second?", "second", "string")]
    return str([answer() for answer in asked])


def test_tool_with_task(arguments, stop):
    name = ask("What is your name?", "name", "string")()
    stop.wait(1)
    return f"Hello, {name}!"


TOOLS = {
    "greet": lambda arguments, stop: f"Hello, {arguments.get('name')}!",
    "slow_compute": slow_compute,
    "failing_job": failing_job,
    "protocol_error_job": protocol_error_job,
    "confirm_delete": lambda arguments, stop: f"confirmed: {ask('Delete?')()}",
    "multi_input": multi_input,
    "test_tool_with_task": test_tool_with_task,
}


def call(key, name, arguments):
    stop = cancelled[key] = threading.Event()
    try:
        text = TOOLS[name](arguments, stop)
        result = {"content": [{"type": "text", "text": text or "the job has failed"}], "isError": text is None}
        if not stop.is_set():
            write({"id": key, "result": result})
    except ProtocolError as error:
        write({"id": key, "error": {"code": -32603, "message": str(error)}})


for line in sys.stdin:
    said = json.loads(line)
    method, key, params = said.get("method"), said.get("id"), said.get("params") or {}
    if method is None:
        if key in answers:
            answers[key][1] = said.get("result") or {}
            answers[key][0].set()
    elif method == "notifications/cancelled":
        if params.get("requestId") in cancelled:
            cancelled[params["requestId"]].set()
    elif key is None:
        pass
    elif method == "initialize":
        info = {"name": "working", "version": "1"}
        write({"id": key, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        write({"id": key, "result": {"tools": tools}})
    elif method == "tools/call" and params.get("name") in TOOLS:
        threading.Thread(target=call, args=(key, params["name"], params.get("arguments") or {}), daemon=True).start()
    elif method == "ping":
        write({"id": key, "result": {}})
    else:
        write({"id": key, "error": {"code": -32602, "message": f"there is no {method}"}})
