#!/usr/bin/env python3
"""A client for the example of several replicas: it calls the tool `work` and counts what comes back.

Each session is a thread that does what the specification asks of clients: `initialize` (again on 503, after Retry-After),
one call after the other with a progress token, after a lost connection a GET with Last-Event-ID, and where the session is
no more (404) a new session with the same call, which nobody has run. Each request has a connection of its own, so that a
balancer may send each to another replica. Only the standard library of Python 3 is needed.
"""
import collections
import http.client
import json
import threading
import time
import urllib.parse


class Tally:
    """What all sessions have seen. `problems` counts by kind whatever a user would notice, `again` what the client did
    again without anybody noticing."""

    def __init__(self):
        self.lock, self.calls, self.answers, self.resumed, self.begun = threading.Lock(), 0, 0, 0, 0
        self.reports, self.waited, self.problems, self.again = [], [], collections.Counter(), collections.Counter()
        # The reports of each open call, and when each failed call failed.
        self.live, self.failed = {}, []
        # No call begins while this is not set.
        self.gate = threading.Event()
        self.gate.set()

    def count(self, **more):
        with self.lock:
            for name, number in more.items():
                setattr(self, name, getattr(self, name) + number)

    def problem(self, kind):
        with self.lock:
            self.problems[kind] += 1
        return False


class Refused(Exception):
    """A status that a client cannot go on from."""


class Ended(Exception):
    """The session is no more, and the call was not begun."""


class Session:
    def __init__(self, url, tally, timeout=20):
        self.url, self.tally, self.timeout = urllib.parse.urlsplit(url), tally, timeout
        self.id, self.number = None, 0

    def send(self, method, body=None, headers=()):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=self.timeout)
        named = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        if self.id:
            named["Mcp-Session-Id"] = self.id
        else:
            del named["MCP-Protocol-Version"]
        if body is not None:
            named["Content-Type"] = "application/json"
        connection.request(method, self.url.path, body and json.dumps(body), {**named, **dict(headers)})
        return connection, connection.getresponse()

    def begin(self):
        """Sends `initialize` until a replica takes it."""
        self.id = None
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fleet-example", "version": "1"}}
        for _ in range(10):
            connection, response = self.send("POST", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client})
            text = response.read()
            connection.close()
            if response.status == 503 and response.getheader("Retry-After"):
                with self.tally.lock:
                    self.tally.again["initialize after 503"] += 1
                time.sleep(float(response.getheader("Retry-After")))
                continue
            if response.status != 200:
                raise Refused(f"initialize: {response.status} {text[:80]!r}")
            self.id = response.getheader("Mcp-Session-Id")
            connection, response = self.send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})
            response.read()
            connection.close()
            if response.status not in (200, 202):
                raise Refused(f"initialized: {response.status}")
            return self.tally.count(begun=1)
        raise Refused("initialize: 503, ten times")

    def call(self, steps, ms):
        """Makes one call; returns whether it was answered. Whatever a user would notice becomes a problem of the tally."""
        self.number += 1
        params = {"name": "work", "arguments": {"steps": steps, "ms": ms}, "_meta": {"progressToken": self.number}}
        request = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        seen, begun, last = [], time.monotonic(), None
        self.tally.gate.wait()
        self.tally.count(calls=1)
        self.tally.live[self] = seen
        try:
            message, last = self.read(*self.send("POST", request), seen)
            for _ in range(20):
                if message is not None or last is None:
                    break
                # As the SDKs do: a pause, then a GET that says what has come.
                time.sleep(0.3)
                self.tally.count(resumed=1)
                try:
                    message, last = self.read(*self.send("GET", None, {"Last-Event-ID": last}), seen, last)
                except OSError:
                    continue
        except Refused as refused:
            return self.fail(str(refused))
        except OSError as error:
            return self.fail(f"connection: {type(error).__name__}")
        except Ended:
            self.tally.count(calls=-1)
            raise
        finally:
            del self.tally.live[self]
            with self.tally.lock:
                self.tally.waited.append(time.monotonic() - begun)
        if any(second <= first for first, second in zip(seen, seen[1:])):
            self.tally.problem("figures that do not rise")
        if message is None:
            return self.fail("no answer")
        if "error" in message:
            return self.fail(f"error: {message['error']['message'][:70]}")
        with self.tally.lock:
            self.tally.answers += 1
            self.tally.reports.append(sum(figure == int(figure) for figure in seen))
        return True

    def fail(self, kind):
        with self.tally.lock:
            self.tally.failed.append(time.monotonic())
        return self.tally.problem(kind)

    def read(self, connection, response, seen, last=None):
        """Reads one response until the answer; returns the answer (or None) and the last event id."""
        try:
            if response.status == 404 and last is None:
                raise Ended
            if response.status != 200:
                raise Refused(f"{'call' if last is None else 'resume'}: status {response.status}")
            if "json" in response.getheader("Content-Type", ""):
                return json.loads(response.read()), last
            while True:
                line = response.readline()
                if not line:
                    return None, last
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name == "id":
                    last = value
                elif name == "data" and value:
                    message = json.loads(value)
                    if message.get("method") == "notifications/progress":
                        if message["params"]["progressToken"] == self.number:
                            seen.append(message["params"]["progress"])
                        else:
                            self.tally.problem("progress of another call")
                    elif message.get("id") == self.number:
                        return message, last
        except (http.client.HTTPException, ConnectionError):
            return None, last
        finally:
            connection.close()


def run(url, tally, sessions, steps, ms, until, calls=None):
    """Starts `sessions` threads that call until the event `until` is set, or `calls` times each."""

    def work():
        session, made, is_good = Session(url, tally), 0, False
        while not until.is_set() and (calls is None or made < calls):
            try:
                # A session that is lost is begun anew, as its user would do.
                if not is_good:
                    session.begin()
                is_good = session.call(steps, ms)
                made += 1
            except Ended:
                is_good = False
                with tally.lock:
                    tally.again["a session, which had ended before the call"] += 1
            except (Refused, OSError) as error:
                return tally.problem(f"no session: {error}")

    threads = [threading.Thread(target=work, daemon=True) for _ in range(sessions)]
    for thread in threads:
        thread.start()
    return threads
