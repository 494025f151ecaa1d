"""A stand-in for the model's service of a host, on loopback.

The stand-in speaks Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini, each as a stream of events.
A model of three rules answers: it calls the tool; it calls the tool again where the result asks for that, or is the
host's time-out; then it says what the tool answered, and ends. It writes down each tool result that the host shows it.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY_MAX = 8 << 20
"""Bytes of a request that are read; a host's request has about 200 kB."""

AGAIN = re.compile(r"call the same tool again|timed? ?out|timeout|-32001", re.IGNORECASE)
"""Results that make a model call the tool once more."""


class Model:
    """The stand-in, serving until `close`. `results` has the tool results of the latest request."""

    def __init__(self, tool, arguments, calls=1, calls_max=1):
        self.tool, self.arguments, self.calls, self.calls_max = tool, arguments, calls, calls_max
        self.results, self.asked, self.outside, self.unknown = [], 0, set(), []
        self.began = time.monotonic()
        self.seen = []
        handler = type("Handler", (Handler,), {"model": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def turn(self, names, results):
        """What the model does next: a call `(name, arguments)`, or a text."""
        name = next((name for name in names if name.endswith(self.tool)), None)
        if name is None:
            return "A conversation."
        self.asked += 1
        self.results = results
        again = results and AGAIN.search(results[-1]) and len(results) < self.calls_max
        if len(results) < self.calls or again:
            return name, self.arguments
        return f"The tool has answered: {one_line(results[-1])[:160]}"


def one_line(text):
    return " ".join(text.split())


def text_of(content):
    """The text of a tool result, in the form of any of the three services."""
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else json.dumps(content)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_CONNECT(self):
        """Hosts find a proxy in their environment, this one, so that no request leaves the machine."""
        self.model.outside.add(self.path)
        self.refuse(403)

    def do_HEAD(self):
        self.refuse(404)

    def do_GET(self):
        if self.path.startswith("http"):
            self.model.outside.add(self.path.split("/")[2])
            return self.refuse(403)
        if self.path.split("?")[0].endswith("/models"):
            return self.json({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})
        self.model.unknown.append(f"GET {self.path}")
        return self.refuse(404)

    def do_POST(self):
        length = min(int(self.headers.get("Content-Length") or 0), BODY_MAX)
        try:
            body = json.loads(self.rfile.read(length) or b"{}")
        except ValueError:
            body = {}
        self.model.seen.append((self.path, body))
        path = self.path.split("?")[0]
        if self.path.startswith("http"):
            self.model.outside.add(self.path.split("/")[2])
            self.refuse(403)
        elif path.endswith("/messages"):
            self.answer_messages(body)
        elif path.endswith("/count_tokens"):
            self.json({"input_tokens": 100})
        elif path.endswith("/responses"):
            self.answer_responses(body)
        elif path.endswith("/chat/completions"):
            self.answer_completions(body)
        elif path.endswith((":generateContent", ":streamGenerateContent")):
            self.answer_gemini(body, path.endswith(":streamGenerateContent"))
        elif path.endswith(":countTokens"):
            self.json({"totalTokens": 100})
        else:
            self.model.unknown.append(f"POST {self.path}")
            self.refuse(404)

    def refuse(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def json(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def events(self, events, named=True):
        """A stream of events, which ends with its connection."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            if named:
                self.wfile.write(f"event: {event['type']}\n".encode())
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"data: {data}\n\n".encode())
        self.close_connection = True

    def answer_messages(self, body):
        """Anthropic Messages."""
        results = [
            text_of(part.get("content"))
            for message in body.get("messages", [])
            for part in (message["content"] if isinstance(message["content"], list) else [])
            if part.get("type") == "tool_result"
        ]
        turn = self.model.turn([tool.get("name", "") for tool in body.get("tools") or []], results)
        if isinstance(turn, str):
            block, reason = {"type": "text", "text": turn}, "end_turn"
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": turn}
        else:
            tool = {"type": "tool_use", "id": f"toolu_{len(results):024}", "name": turn[0]}
            block, reason = {**tool, "input": turn[1]}, "tool_use"
            start, delta = {**tool, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(turn[1])}
        message = {
            "id": f"msg_{self.model.asked:024}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "stand-in"),
            "content": [block],
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 10},
        }
        if not body.get("stream"):
            return self.json(message)
        empty = {**message, "content": [], "stop_reason": None}
        return self.events(
            [
                {"type": "message_start", "message": empty},
                {"type": "content_block_start", "index": 0, "content_block": start},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 10}},
                {"type": "message_stop"},
            ]
        )

    def answer_responses(self, body):
        """OpenAI Responses."""
        items = body.get("input") if isinstance(body.get("input"), list) else []
        results = [text_of(item.get("output")) for item in items if item.get("type") == "function_call_output"]
        spaces = {}
        for tool in body.get("tools") or []:
            for inner in tool.get("tools") or []:
                spaces[inner.get("name", "")] = tool.get("name")
            spaces.setdefault(tool.get("name") or "", None)
        turn = self.model.turn(list(spaces), results)
        number = self.model.asked
        if isinstance(turn, str):
            content = [{"type": "output_text", "text": turn, "annotations": []}]
            item = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}
        else:
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": turn[0]}
            item["arguments"] = json.dumps(turn[1])
            if spaces[turn[0]]:
                item["namespace"] = spaces[turn[0]]
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        response = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": [item], "usage": usage}
        return self.events(
            [
                {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": response},
            ]
        )

    def answer_completions(self, body):
        """OpenAI Chat Completions."""
        results = [text_of(message.get("content")) for message in body.get("messages", []) if message.get("role") == "tool"]
        turn = self.model.turn([tool["function"]["name"] for tool in body.get("tools") or []], results)
        if isinstance(turn, str):
            delta, reason = {"role": "assistant", "content": turn}, "stop"
        else:
            function = {"name": turn[0], "arguments": json.dumps(turn[1])}
            call = {"index": 0, "id": f"call_{len(results)}", "type": "function", "function": function}
            delta, reason = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
        base = {"id": f"chat_{self.model.asked}", "created": 1, "model": "stand-in", "usage": None}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}

        def chunk(delta, reason, usage=None):
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            return {**base, "object": "chat.completion.chunk", "choices": choices, "usage": usage}

        if not body.get("stream"):
            choices = [{"index": 0, "message": delta, "finish_reason": reason}]
            return self.json({**base, "object": "chat.completion", "choices": choices, "usage": usage})
        return self.events([chunk(delta, None), chunk({}, reason, usage), "[DONE]"], named=False)

    def answer_gemini(self, body, is_stream):
        """Gemini."""
        parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
        results = [json.dumps(part["functionResponse"].get("response")) for part in parts if "functionResponse" in part]
        names = [tool["name"] for tools in body.get("tools") or [] for tool in tools.get("functionDeclarations", [])]
        turn = self.model.turn(names, results)
        part = {"text": turn} if isinstance(turn, str) else {"functionCall": {"name": turn[0], "args": turn[1]}}
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"}
        return self.events([answer], named=False) if is_stream else self.json(answer)
