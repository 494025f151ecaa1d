"""Two hundred clients of ten habits, over Streamable HTTP with and without sessions, and over HTTP+SSE."""
import asyncio
import json
import random
import uuid

from wire import Connection

HABITS = ["patient", "leaves", "returns", "cancels", "equal-ids", "slow", "large", "deletes", "no-get", "many-gets"]
WIRES = ["2025-06-18", "2026-07-28", "sse"]
# The time without an answer after which a request counts as lost.
LIMIT = 60
BROKEN = (OSError, ValueError, EOFError)
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "stranger", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}}


class Ended(Exception):
    """This session cannot go on: its server or Milepost has said so, and the account knows it."""


class Gate:
    """Lets clients through, except while all of them rest."""

    def __init__(self):
        self.open, self.inside, self.is_over = asyncio.Event(), 0, False
        self.open.set()

    @property
    def is_resting(self):
        return self.is_over or not self.open.is_set()


class Conversation:
    """What all wires have in common: the calls of one session, and how one is made."""

    def __init__(self, client, route, wire):
        self.client, self.route, self.wire, self.account = client, route, wire, client.account
        self.calls, self.tasks, self.number, self.slow = [], [], 0, client.habit == "slow"
        self.kept = None

    def make(self, pad=""):
        """A call of the account, and its request."""
        self.number += 1
        nonce = uuid.uuid4().hex
        ident, token = (1, 1) if self.client.habit == "equal-ids" else (self.number, f"t{self.number}-{nonce[:6]}")
        call = self.account.begin(self.client.habit, self.route, self.wire, ident, token, nonce, pad)
        self.calls = self.calls[-50:] + [call]
        arguments = {"nonce": nonce, "pause": self.client.random.uniform(0.01, 0.3), **({"pad": pad} if pad else {})}
        meta = {"progressToken": token, **(META if self.wire == "2026-07-28" else {})}
        params = {"name": "work", "arguments": arguments, "_meta": meta}
        return call, {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}

    async def open(self):
        return await Connection.open(self.client.port, self.slow)

    def elsewhere(self, message):
        """A message on a stream of the session."""
        if message.get("method") == "notifications/progress":
            token = message.get("params", {}).get("progressToken")
            owner = next((call for call in reversed(self.calls) if call.token == token), self.calls[-1] if self.calls else None)
        else:
            owner = next((call for call in reversed(self.calls) if call.id == message.get("id") and not call.answer), None)
        if owner:
            self.account.message(owner, message, same_stream=False)

    async def stop_tasks(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        if self.kept:
            self.kept.close()


class Streamable(Conversation):
    """Streamable HTTP: of 2025-06-18 and 2025-11-25 with a session, of 2026-07-28 without."""

    session = None

    def headers(self, request=None):
        if self.wire == "2026-07-28":
            return {**ACCEPT, "MCP-Protocol-Version": self.wire, "Mcp-Method": request["method"], "Mcp-Name": "work"}
        return {**ACCEPT, **({"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.wire} if self.session else {})}

    async def begin(self):
        if self.wire == "2026-07-28":
            return
        call = self.account.begin(self.client.habit, self.route, self.wire, 0, None, "initialize", "")
        params = {"protocolVersion": self.wire, "capabilities": {}, "clientInfo": {"name": "stranger", "version": "1"}}
        try:
            response, text = await self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        except (*BROKEN, asyncio.TimeoutError) as error:
            self.account.end(call, "lost", repr(error))
            raise Ended
        if response.status != 200 or b'"result"' not in text:
            self.account.refused(call, response.status, text)
            raise Ended
        self.account.end(call, "right" if b'"serverInfo"' in text else "wrong", text)
        self.session = response.headers.get("mcp-session-id")
        await self.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
        for _ in range({"no-get": 0, "many-gets": 5}.get(self.client.habit, 1)):
            self.tasks.append(asyncio.ensure_future(self.listen()))

    async def ask(self, message, method="POST"):
        """A request whose whole body is read."""
        connection = await self.open()
        try:
            async with asyncio.timeout(LIMIT):
                body = json.dumps(message).encode() if message else b""
                response = await connection.send(method, self.route, self.headers(message), body)
                return response, await response.whole()
        finally:
            connection.close()

    async def listen(self, since=None, until=None):
        """Reads a listening stream; with `since` the rest of a stream that was left, until a call has its answer."""
        connection = await self.open()
        try:
            extra = {"Last-Event-ID": since} if since else {}
            response = await connection.send("GET", self.route, {**self.headers(), "Accept": "text/event-stream", **extra})
            if response.status != 200:
                if until:
                    self.account.refused(until, response.status, await response.whole())
                return
            async for _, _, data in response.events():
                if data and until:
                    if self.account.message(until, json.loads(data)):
                        return
                elif data:
                    self.elsewhere(json.loads(data))
        except BROKEN as error:
            if until:
                self.account.end(until, "lost", f"while it came back: {error!r}")
        finally:
            connection.abort()

    async def call(self, pad="", leave_at=None, come_back=False):
        """Makes a call and waits for its answer, or leaves at a time."""
        call, request = self.make(pad)
        connection = self.kept or await self.open()
        self.kept, state = None, {"id": None}
        try:
            async with asyncio.timeout(leave_at or LIMIT):
                is_whole = await self.read(call, connection, request, state, come_back)
        except asyncio.TimeoutError:
            self.account.end(call, "given_up" if leave_at else "lost", f"silent for {LIMIT} s")
            is_whole = False
        except BROKEN as error:
            self.account.end(call, "lost", f"the connection broke: {error!r}")
            is_whole = False
        if is_whole and self.client.habit == "patient":
            self.kept = connection
        else:
            connection.abort()
        if come_back and call.outcome is None and state["id"]:
            await self.come_back(call, state["id"])
        self.account.end(call, "lost", "its stream ended without an answer")
        if call.answer is None and call.outcome != "given_up" and self.wire != "2026-07-28":
            raise Ended

    async def come_back(self, call, since):
        await asyncio.sleep(self.client.random.uniform(0, 1))
        try:
            async with asyncio.timeout(LIMIT):
                await self.listen(since, call)
        except asyncio.TimeoutError:
            self.account.end(call, "lost", f"silent for {LIMIT} s after it came back")

    async def read(self, call, connection, request, state, come_back):
        """Reads a response; returns whether it was read to its end."""
        body = json.dumps(request).encode()
        response = await connection.send("POST", self.route, self.headers(request), body)
        if response.status != 200:
            self.account.refused(call, response.status, await response.whole())
        elif response.is_stream:
            async for ident, _, data in response.events():
                state["id"] = ident or state["id"]
                if data:
                    self.account.message(call, json.loads(data))
                if come_back and state["id"] and call.answer is None:
                    return False
        else:
            self.account.message(call, json.loads(await response.whole()))
        return True

    async def cancel(self, call):
        if self.wire != "2026-07-28":
            params = {"requestId": call.id, "reason": "no longer wanted"}
            await self.ask({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def delete(self):
        if self.session:
            await self.ask(None, "DELETE")

    async def end(self, politely):
        try:
            if politely:
                await self.delete()
        except (*BROKEN, asyncio.TimeoutError):
            pass
        await self.stop_tasks()


class Sse(Conversation):
    """HTTP+SSE of 2024-11-05: one stream for all messages."""

    async def begin(self):
        self.endpoint, self.news, self.closed = asyncio.get_running_loop().create_future(), asyncio.Event(), False
        call = self.account.begin(self.client.habit, self.route, self.wire, 0, None, "initialize", "")
        self.greeting = call
        self.stream = await self.open()
        self.tasks.append(asyncio.ensure_future(self.listen()))
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "stranger", "version": "1"}}
        try:
            async with asyncio.timeout(LIMIT):
                await asyncio.shield(self.endpoint)
                await self.post(call, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
                await self.wait(lambda: call.outcome)
        except (*BROKEN, asyncio.TimeoutError) as error:
            self.account.end(call, "lost", repr(error))
        if call.outcome != "right":
            raise Ended
        await self.post(None, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def wait(self, holds):
        while not holds():
            if self.closed:
                raise ConnectionError("the stream of the session ended")
            self.news.clear()
            await self.news.wait()

    async def listen(self):
        try:
            response = await self.stream.send("GET", f"{self.route}/sse", {"Accept": "text/event-stream"})
            if response.status != 200:
                return self.account.refused(self.greeting, response.status, await response.whole())
            async for _, kind, data in response.events():
                if kind == "endpoint":
                    self.endpoint.set_result(data.decode())
                elif data:
                    self.heard(json.loads(data))
                self.news.set()
        except BROKEN:
            pass
        finally:
            self.closed = True
            if not self.endpoint.done():
                self.endpoint.set_exception(ConnectionError("no endpoint"))
                self.endpoint.exception()
            self.news.set()
            self.stream.abort()

    def heard(self, message):
        if self.greeting.outcome is None and message.get("id") == 0 and "result" in message:
            return self.account.end(self.greeting, "right" if "serverInfo" in message["result"] else "wrong", message)
        if self.greeting.outcome is None and "error" in message:
            return self.account.message(self.greeting, message)
        if message.get("method") == "notifications/progress":
            token = message.get("params", {}).get("progressToken")
            owner = next((call for call in reversed(self.calls) if call.token == token), self.calls[-1] if self.calls else self.greeting)
            return self.account.message(owner, message)
        owner = next((call for call in reversed(self.calls) if call.id == message.get("id")), None)
        if owner:
            self.account.message(owner, message)

    async def post(self, call, message):
        connection = await self.open()
        try:
            response = await connection.send("POST", self.endpoint.result(), ACCEPT, json.dumps(message).encode())
            body = await response.whole()
            if call and response.status not in (200, 202):
                self.account.refused(call, response.status, body)
        finally:
            connection.close()

    async def call(self, pad="", leave_at=None, come_back=False):
        call, request = self.make(pad)
        try:
            async with asyncio.timeout(leave_at or LIMIT):
                await self.post(call, request)
                await self.wait(lambda: call.outcome)
        except asyncio.TimeoutError:
            self.account.end(call, "given_up" if leave_at else "lost", f"silent for {LIMIT} s")
        except BROKEN as error:
            self.account.end(call, "lost", repr(error))
        if call.answer is None:
            raise Ended

    async def cancel(self, call):
        params = {"requestId": call.id, "reason": "no longer wanted"}
        await self.post(None, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def delete(self):
        self.stream.abort()

    async def end(self, politely):
        await self.stop_tasks()
        self.stream.abort()


class Client:
    """A client with a habit: it lives in sessions of a few calls, one after the other, each on another route."""

    def __init__(self, number, port, account, gate, routes, seed):
        self.number, self.port, self.account, self.gate, self.routes = number, port, account, gate, routes
        self.habit, self.random = HABITS[number % len(HABITS)], random.Random(seed * 1000 + number)

    async def run(self):
        life = self.number // len(HABITS)
        while not self.gate.is_over:
            await self.gate.open.wait()
            self.gate.inside += 1
            try:
                await self.live(self.routes[life % len(self.routes)], self.wire())
            finally:
                self.gate.inside -= 1
            life += 1
            await asyncio.sleep(self.random.uniform(0.1, 2))

    def wire(self):
        if self.habit in ("no-get", "many-gets", "deletes"):
            return "2025-06-18"
        if self.habit == "returns":
            return "2025-11-25"
        return self.random.choice(WIRES)

    async def live(self, route, wire):
        conversation = (Sse if wire == "sse" else Streamable)(self, route, wire)
        try:
            await conversation.begin()
            for _ in range(self.random.randint(2, 6)):
                if self.gate.is_resting:
                    break
                await getattr(self, self.habit.replace("-", "_"), self.patient)(conversation)
                await asyncio.sleep(self.random.uniform(0.2, 1.5))
        except (Ended, *BROKEN):
            pass
        finally:
            await conversation.end(politely=self.habit != "leaves" or self.random.random() < 0.5)

    async def patient(self, conversation):
        await conversation.call()

    async def leaves(self, conversation):
        await conversation.call(leave_at=self.random.uniform(0.01, 1))

    async def returns(self, conversation):
        await conversation.call(come_back=True)

    async def equal_ids(self, conversation):
        """Three calls at once with one id and one token; over HTTP+SSE, where nobody could tell them apart, one."""
        count = 1 if conversation.wire == "sse" else 3
        await asyncio.gather(*(conversation.call() for _ in range(count)))

    async def large(self, conversation):
        await conversation.call(pad="abcdefgh" * self.random.randint(125_000, 375_000))

    async def cancels(self, conversation):
        """Cancels a call, and waits a few seconds more: the answer may have been faster."""
        waiting = asyncio.ensure_future(conversation.call(leave_at=self.random.uniform(2, 4)))
        await asyncio.sleep(self.random.uniform(0.01, 0.6))
        call = conversation.calls[-1] if conversation.calls else None
        try:
            if call and call.answer is None and not waiting.done():
                call.is_cancelled = True
                await conversation.cancel(call)
        finally:
            await asyncio.gather(waiting, return_exceptions=True)

    async def deletes(self, conversation):
        """Deletes the session in the middle of a call."""
        waiting = asyncio.ensure_future(conversation.call(leave_at=5))
        await asyncio.sleep(self.random.uniform(0.01, 0.8))
        if conversation.calls:
            conversation.calls[-1].is_cancelled = True
        try:
            await conversation.delete()
        finally:
            await asyncio.gather(waiting, return_exceptions=True)
        raise Ended
