"""A server of 2025-06-18 over stdio whose tools ask their client, for the scenarios of the conformance suite in which a
server of 2026-07-28 answers with `input_required`. The conformance server of the Python SDK has no such tools for
earlier revisions.
"""

import itertools
import json
import sys
import threading

ids = itertools.count(1000)
lock = threading.Lock()
answers = {}
capabilities = {}


def write(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(method, **params):
    key = next(ids)
    answers[key] = done = [threading.Event(), None]
    write({"id": key, "method": method, "params": params})
    done[0].wait()
    return done[1]


def elicit(message="What is your name?", name="name", kind="string"):
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    answer = ask("elicitation/create", message=message, requestedSchema=schema)
    return (answer.get("content") or {}).get(name)


def sample():
    text = {"type": "text", "text": "What is the capital of France?"}
    return ask("sampling/createMessage", messages=[{"role": "user", "content": text}], maxTokens=100)


def several():
    return f"All inputs received: {elicit()} {sample()} {ask('roots/list')}"


def rounds():
    return f"{elicit('Step 1: What is your name?')} likes {elicit('Step 2: What is your favorite color?', 'color')}."


def declared():
    asked = [("sampling", sample), ("elicitation", elicit)]
    return str([question() for name, question in asked if name in capabilities])


TOOLS = {
    "elicitation": lambda: f"Hello, {elicit()}!",
    "sampling": lambda: f"Model said: {sample()['content']['text']}",
    "list_roots": lambda: f"Client exposed {len(ask('roots/list')['roots'])} root(s).",
    "request_state": lambda: f"state-ok: {elicit('Please confirm', 'ok', 'boolean')}",
    "multiple_inputs": several,
    "multi_round": rounds,
    "tampered_state": lambda: f"state-ok: {elicit('Please confirm', 'ok', 'boolean')}",
    "capabilities": declared,
}


def serve(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        capabilities.update(params["capabilities"])
        known = {"tools": {}, "prompts": {}, "resources": {}}
        result = {"protocolVersion": "2025-06-18", "capabilities": known, "serverInfo": {"name": "asking", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object"}
        result = {"tools": [{"name": f"test_input_required_result_{name}", "inputSchema": schema} for name in TOOLS]}
    elif method == "prompts/list":
        result = {"prompts": [{"name": "test_input_required_result_prompt"}]}
    elif method == "resources/list":
        result = {"resources": []}
    elif method == "prompts/get":
        text = f"Use the following context: {elicit('What context should the prompt use?', 'context')}"
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    elif method == "tools/call" and (tool := TOOLS.get(params["name"].removeprefix("test_input_required_result_"))):
        result = {"content": [{"type": "text", "text": tool()}]}
    else:
        return write({"id": request["id"], "error": {"code": -32601, "message": method}})
    write({"id": request["id"], "result": result})


for line in sys.stdin:
    message = json.loads(line)
    if "method" in message and "id" in message:
        threading.Thread(target=serve, args=[message], daemon=True).start()
    elif "id" in message and message["id"] in answers:
        done = answers.pop(message["id"])
        done[1] = message.get("result", {})
        done[0].set()
