"""Ten servers, each with one odd habit: `servers.py KIND` speaks over standard streams, `servers.py KIND PORT` over HTTP.

Each call carries a nonce and may carry padding. The answer repeats the nonce and the checksum of the padding, so that
a client recognises an answer that belongs to another call. Every error of these servers begins with `odd:`.
"""
import json
import sys
import time
import zlib

STDIO = ["legacy", "silent", "large", "dying", "junk"]
HTTP = ["falling", "cut", "moody", "closing", "jobs"]
LARGE_BYTES = 2_000_000
JUNK = ["Loading model... 40%", '{"not": "a message"', "", "\x1b[32mok\x1b[0m", "[1/3] resolving", '{"level":"info","msg":"ready"}']


def result_of(request, **members):
    return {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **members}}


def answer_of(kind, request):
    """The answer of a call: its nonce, and the length and checksum of its padding."""
    arguments = request["params"]["arguments"]
    pad = arguments.get("pad", "").encode()
    text = f"nonce={arguments['nonce']} pad={len(pad)}:{zlib.crc32(pad)}"
    content = [{"type": "text", "text": text}]
    if kind == "large":
        content.append({"type": "text", "text": arguments["nonce"][0] * LARGE_BYTES})
    return result_of(request, content=content, isError=False)


def greeting(request):
    """The result of every request that is not a call."""
    params = request.get("params") or {}
    return result_of(request, protocolVersion=params.get("protocolVersion", "2025-06-18"), supportedVersions=["2026-07-28"],
                     capabilities={"tools": {}, "logging": {}}, serverInfo={"name": "odd", "version": "1"},
                     tools=[{"name": "work", "inputSchema": {"type": "object"}}], ttlMs=1000, cacheScope="private")


def progress(request, value, **members):
    token = request["params"].get("_meta", {}).get("progressToken")
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": value, **members}}


def legacy(request, value, last):
    told = {"status": "in_progress", "message": f"step {value}", "percentComplete": value}
    params = {"id": request["id"], "content": [{"type": "text", "text": json.dumps(told)}], "isFinal": last}
    return {"jsonrpc": "2.0", "method": "tools/progress", "params": params}


def job(request, value):
    params = {"requestId": request["id"], "jobId": "j" + request["params"]["arguments"]["nonce"], "progress": value}
    return {"jsonrpc": "2.0", "method": "notifications/job", "params": params}


def chance(request):
    """A number below 100 which the nonce decides."""
    return zlib.crc32(request["params"]["arguments"]["nonce"].encode()) % 100


def play(kind, request):
    """What a server does in a call: pauses (numbers), messages (objects), lines (text), and `die`."""
    pause, odds = request["params"]["arguments"].get("pause", 0.1), chance(request)
    if kind == "silent":
        yield pause * 10
    for step in range(1, 4):
        yield pause
        if kind == "legacy":
            yield legacy(request, step * 30, False)
        elif kind == "jobs":
            yield job(request, step)
        elif kind == "junk":
            yield JUNK[(odds + step) % len(JUNK)]
            yield progress(request, step)
        elif kind == "falling":
            yield from (progress(request, value) for value in (step, step + 2, step - 1, step))
        elif kind != "silent":
            yield progress(request, step, total=3)
        if kind == "dying" and odds < 4 and step == 2:
            yield "die"
    if kind == "legacy":
        yield legacy(request, 100, True)
    yield answer_of(kind, request)
    if kind == "falling":
        yield progress(request, 9)


def serve_lines(kind):
    """A stdio server that works on many calls at once."""
    import threading
    lock = threading.Lock()

    def write(text):
        with lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def work(request):
        for act in play(kind, request):
            if isinstance(act, (int, float)):
                time.sleep(act)
            elif act == "die":
                import os
                os._exit(1)
            else:
                write(act if isinstance(act, str) else json.dumps(act))
    for line in sys.stdin:
        request = json.loads(line)
        if "method" not in request or "id" not in request:
            continue
        if request["method"] == "tools/call":
            threading.Thread(target=work, args=(request,), daemon=True).start()
        else:
            write(json.dumps(greeting(request)))


def main():
    kind = sys.argv[1]
    if kind in STDIO:
        serve_lines(kind)
    else:
        import asyncio
        import pathlib
        sys.path.insert(0, str(pathlib.Path(__file__).parent))
        sys.dont_write_bytecode = True
        import web
        asyncio.run(web.Web(kind).serve(int(sys.argv[2])))


if __name__ == "__main__":
    main()
