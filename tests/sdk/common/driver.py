"""What the Python drivers share: the command line, the calls, the report.

See ../README.md for both formats.
"""

import asyncio
import json
import logging
import math
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager

import anyio

MAX_LISTED = 20
CLOSE_SECONDS = 10


class Options:
    def __init__(self, argv):
        self.calls, self.repeat, self.deadline, self.timeout = [], 1, 120.0, None
        self.linger = 0.1
        self.concurrent, self.list = False, False
        self.progress, self.negotiate, self.protocol = True, None, None
        self.command, self.url, self.sse, self.headers = None, None, None, {}
        words = iter(argv)
        try:
            for word in words:
                self._take(word, words)
        except StopIteration:
            usage(f"{word} needs a value")
        except ValueError as error:
            usage(f"{word}: {error}")
        if [bool(self.command), bool(self.url), bool(self.sse)].count(True) != 1:
            usage("one of --url, --sse and a command after -- is needed")

    def _take(self, word, words):
        if word == "--":
            self.command, *self.args = list(words) or [None]
        elif word == "--call":
            tool, has_args, args = next(words).partition("=")
            self.calls.append((tool, json.loads(args) if has_args else {}))
        elif word == "--repeat":
            self.repeat = int(next(words))
        elif word == "--timeout":
            self.timeout = float(next(words))
        elif word == "--deadline":
            self.deadline = float(next(words))
        elif word == "--linger":
            self.linger = float(next(words)) / 1000
        elif word == "--negotiate":
            self.negotiate = next(words)
        elif word == "--protocol":
            self.protocol = next(words)
        elif word == "--url":
            self.url = next(words)
        elif word == "--sse":
            self.sse = next(words)
        elif word == "--header":
            name, has_value, value = next(words).partition("=")
            if not name or not has_value:
                raise ValueError("NAME=VALUE is needed")
            self.headers[name] = value
        elif word == "--busy":
            next(words)  # TypeScript only
        elif word == "--reset":
            pass  # the Python SDK has no such option
        elif word == "--concurrent":
            self.concurrent = True
        elif word == "--list":
            self.list = True
        elif word == "--no-progress":
            self.progress = False
        else:
            usage(f"unknown argument {word}")


def usage(problem):
    print(f"{problem}\nusage: client --call TOOL[=JSON] ... [options] --url URL | --sse URL | -- CMD [ARG...]   (see tests/sdk/README.md)", file=sys.stderr)
    sys.exit(2)


def json_safe(value):
    """NaN and infinities, which one SDK delivers, are no JSON: report them as text."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


class Report(logging.Handler):
    """Collects what the SDK reports; as a logging handler, also its warnings."""

    def __init__(self, name):
        super().__init__(logging.WARNING)
        self.data = {
            "client": name, "connected": False, "server_version": None, "protocol": None, "calls": [],
            "stray_progress": 0, "notifications": {}, "errors": [], "error_count": 0,
            "http_errors": [], "http_error_count": 0,
        }
        self.seen = 0
        self.printed = threading.Lock()

    def emit(self, record):
        # The SDK waits two seconds for a server to end, then ends its process group, and warns if that group is gone:
        # the server ended by itself at that moment, which tells how busy the machine is.
        message = record.getMessage()
        if message.startswith("Process group termination failed") and "[Errno 3]" in message:
            return
        _, cause, _ = record.exc_info or (None, None, None)
        self.fault(message + (f": {type(cause).__name__}: {cause}" if cause else ""))

    def fault(self, text):
        self._count("error", text)

    def http_fault(self, method, what):
        self._count("http_error", f"{method} {what}")

    def _count(self, kind, text):
        self.data[f"{kind}_count"] += 1
        if len(self.data[f"{kind}s"]) < MAX_LISTED:
            self.data[f"{kind}s"].append(str(text)[:200])

    def exception(self, error):
        """Counts an exception, and each one inside an exception group."""
        inner = getattr(error, "exceptions", None)
        for one in inner or ():
            self.exception(one)
        if not inner:
            self.fault(f"{type(error).__name__}: {error}")

    async def on_message(self, message):
        """The SDK's message handler: sees every notification and every message it could not read."""
        if isinstance(message, Exception):
            self.exception(message)
            return
        method = getattr(getattr(message, "root", message), "method", None)
        if method == "notifications/progress":
            self.seen += 1
        elif isinstance(method, str) and method.startswith("notifications/"):
            counts = self.data["notifications"]
            counts[method] = counts.get(method, 0) + 1

    def print(self):
        if not self.printed.acquire(blocking=False):
            return
        delivered = sum(len(call["progress"]) for call in self.data["calls"])
        self.data["stray_progress"] = max(0, self.seen - delivered)
        print(json.dumps(self.data, allow_nan=False), flush=True)


def watched(factory, report):
    """A factory of HTTP clients as `factory` makes them, which tells the report what goes wrong below the SDK.

    `factory` is the SDK's own, of whichever HTTP library it uses.
    """

    class Transport:
        def __init__(self, inner, library):
            self.inner, self.library = inner, library

        async def __aenter__(self):
            await self.inner.__aenter__()
            return self

        async def __aexit__(self, *error):
            await self.inner.__aexit__(*error)

        async def aclose(self):
            await self.inner.aclose()

        async def handle_async_request(self, request):
            with self.noting(request):
                response = await self.inner.handle_async_request(request)
            if response.status_code >= 400:
                report.http_fault(request.method, response.status_code)
            response.stream = self.watched_stream(request, response.stream)
            return response

        @contextmanager
        def noting(self, request):
            try:
                yield
            except self.library.TransportError as error:
                report.http_fault(request.method, f"{type(error).__name__}: {error}")
                raise

        def watched_stream(self, request, inner):
            noting = self.noting

            class Stream(self.library.AsyncByteStream):
                async def __aiter__(self):
                    with noting(request):
                        async for chunk in inner:
                            yield chunk

                async def aclose(self):
                    await inner.aclose()

            return Stream()

    def make(headers=None, timeout=None, auth=None):
        client = factory(headers=headers, timeout=timeout, auth=auth)
        client._transport = Transport(client._transport, sys.modules[type(client).__module__.partition(".")[0]])
        return client

    return make


async def call_once(client, report, options, tool, args, is_timeout):
    start = time.monotonic()

    def elapsed():
        return round((time.monotonic() - start) * 1000)

    entry = {
        "tool": tool, "progress": [], "outcome": "timeout", "is_error": False,
        "error": "still running at the deadline", "code": None, "result": None, "ms": None,
    }
    report.data["calls"].append(entry)

    async def on_progress(progress, total, message):
        entry["progress"].append([json_safe(progress), json_safe(total), message, elapsed()])

    try:
        result = await client.call(tool, args, options.timeout, on_progress if options.progress else None)
        value = result if isinstance(result, dict) else result.model_dump(by_alias=True, mode="json", exclude_unset=True)
        entry.update(outcome="result", is_error=value.get("isError") is True, error=None, result=value)
    except Exception as error:  # whatever the SDK raises is the call's outcome
        rpc = getattr(error, "error", None)  # what the SDK's exception for a JSON-RPC error carries
        text = getattr(rpc, "message", None) or str(error) or type(error).__name__
        entry.update(outcome="timeout" if is_timeout(error) else "error", error=text, code=getattr(rpc, "code", None))
    entry["ms"] = elapsed()


async def session(connect, is_timeout, report, options):
    async with connect(options, report) as client:
        report.data.update(connected=True, server_version=client.server_version, protocol=client.protocol)
        if options.list:
            report.data["tools"] = await client.tools()
        calls = options.calls * options.repeat
        if options.concurrent:
            await asyncio.gather(*(call_once(client, report, options, *call, is_timeout) for call in calls))
        else:
            for call in calls:
                await call_once(client, report, options, *call, is_timeout)
        await asyncio.sleep(options.linger)


def kill_children():
    """The last resort of the watchdog: the SDKs start the server in a session of its own."""
    for task in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ():
        with open(f"/proc/self/task/{task}/children") as children:
            for pid in children.read().split():
                os.killpg(int(pid), signal.SIGKILL)


def give_up(report):
    report.fault("the server did not close and was killed")
    try:
        kill_children()
    except OSError:
        pass
    report.print()
    os._exit(0)


async def guarded(connect, is_timeout, report, options):
    try:
        with anyio.move_on_after(options.deadline) as scope:
            await session(connect, is_timeout, report, options)
    except Exception as error:
        report.exception(error)
    if scope.cancelled_caught:
        report.fault(f"deadline of {options.deadline:g} s reached")


def run(name, connect, is_timeout):
    """Runs one client.

    `connect(options, report)` is an async context manager that yields an object with
    `server_version`, `protocol`, `call(tool, args, timeout, on_progress)` and `tools()`.
    """
    options = Options(sys.argv[1:])
    report = Report(name)
    logging.getLogger().addHandler(report)
    watchdog = threading.Timer(options.deadline + CLOSE_SECONDS, give_up, (report,))
    watchdog.daemon = True
    watchdog.start()
    asyncio.run(guarded(connect, is_timeout, report, options))
    report.print()
