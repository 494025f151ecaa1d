"""The account of all requests: what became of each, and what came with it."""
import collections
import json
import textwrap
import time
import zlib

OUTCOMES = ["right", "milepost", "server", "given_up", "lost", "wrong"]
PROGRESS = ["progress", "foreign", "fell", "after"]
# Routes whose servers fail calls by themselves. On all others, errors without an act at the route are faults.
FAILING = ["/dying", "/moody", "/closing"]
# The longest time for which a session notices an act.
NOTICED = 15
# Words of Milepost where as many bytes wait in memory as may.
NO_ROOM = ["_bytes)", "too many bytes of messages wait here"]
# Every request has one outcome; these may not occur.
NEVER = ["lost", "wrong", "foreign", "fell", "after", "twice"]
# The time in which messages on two streams may cross.
CROSSING = 2.5
SHOWN_MAX = 20


class Call:
    """A request of a client until its outcome is known."""

    def __init__(self, habit, route, wire, ident, token, nonce, pad):
        self.habit, self.route, self.wire, self.id, self.token = habit, route, wire, ident, token
        self.nonce, self.pad, self.is_cancelled = nonce, pad, False
        self.begun, self.ended, self.answer, self.outcome, self.last = time.monotonic(), None, None, None, float("-inf")

    def expected(self):
        pad = self.pad.encode()
        return f"nonce={self.nonce} pad={len(pad)}:{zlib.crc32(pad)}"


class Account:
    def __init__(self):
        self.by_habit = collections.defaultdict(collections.Counter)
        self.by_route = collections.defaultdict(collections.Counter)
        self.by_wire = collections.defaultdict(collections.Counter)
        self.errors, self.oddities, self.acts = collections.Counter(), [], []

    def count(self, call, what):
        for table, name in [(self.by_habit, call.habit), (self.by_route, call.route), (self.by_wire, call.wire)]:
            table[name][what] += 1

    def begin(self, *of):
        call = Call(*of)
        self.count(call, "sent")
        return call

    def note(self, call, what, words):
        """Keeps an oddity with its place, so that it can be looked for."""
        if len(self.oddities) < 200:
            age = f"{time.monotonic() - call.begun:.1f} s"
            self.oddities.append(f"{time.strftime('%H:%M:%S')} {what}: {call.route}, {call.habit}, {call.wire}, nonce {call.nonce}, after {age}: {str(words)[:200]}")

    def end(self, call, outcome, words=""):
        if call.outcome is not None:
            return
        if call.is_cancelled and outcome in ("lost", "milepost", "server"):
            outcome = "given_up"
        call.outcome, call.ended = outcome, time.monotonic()
        self.count(call, outcome)
        if outcome in ("lost", "wrong"):
            self.note(call, outcome, words)
        if outcome in ("milepost", "server"):
            near = "no room" if any(part in str(words) for part in NO_ROOM) else "in an act" if self.is_near_act(call) else "no act"
            if near == "no act" and call.route not in FAILING:
                self.note(call, "error", words)
            self.errors[(outcome, call.route, near, str(words)[:110])] += 1

    def is_near_act(self, call):
        return any(call.begun - NOTICED < at and route in ("", call.route) for at, route in self.acts)

    def message(self, call, message, same_stream=True):
        """Counts a message that a client received for a call. Returns whether it was the answer."""
        if message.get("method") == "notifications/progress":
            self.progress(call, message.get("params", {}), same_stream)
        if "method" in message or not ("result" in message or "error" in message):
            return False
        if call.answer is not None:
            self.count(call, "twice")
            self.note(call, "twice", message)
            return True
        call.answer = message
        self.answer(call, message)
        return True

    def answer(self, call, message):
        error = message.get("error")
        if error is not None:
            words = str(error.get("message", ""))
            by_server = "odd:" in json.dumps(error)
            return self.end(call, "server" if by_server else "milepost", f"{error.get('code')} {words}")
        content = message["result"].get("content") or [{}]
        is_right = message.get("id") == call.id and content[0].get("text") == call.expected()
        self.end(call, "right" if is_right else "wrong", json.dumps(message)[:200])

    def progress(self, call, params, same_stream):
        self.count(call, "progress")
        value = params.get("progress")
        if params.get("progressToken") != call.token:
            self.count(call, "foreign")
            self.note(call, "foreign", params)
        elif call.ended is not None and (same_stream or time.monotonic() - call.ended > CROSSING):
            if call.answer is not None:
                self.count(call, "after")
                self.note(call, "after", params)
        elif same_stream and not value > call.last:
            self.count(call, "fell")
            self.note(call, "fell", f"{params} behind {call.last}")
        call.last = max(call.last, value)

    def refused(self, call, status, body):
        """Counts a response that has no message: of the server if it says so, else of Milepost."""
        text = body.decode(errors="replace")
        try:
            message = json.loads(text)
        except ValueError:
            message = {}
        error = message.get("error") if isinstance(message, dict) else None
        code = error.get("code") if isinstance(error, dict) else ""
        words = error.get("message", text) if isinstance(error, dict) else text
        self.end(call, "server" if "odd:" in text else "milepost", f"HTTP {status} {code} {words}".replace("\n", " "))

    def total(self, what):
        return sum(row[what] for row in self.by_habit.values())

    def faults(self):
        """The reasons for which the account does not hold."""
        found = [f"{self.total(what)} {what}" for what in NEVER if self.total(what)]
        for name, row in self.by_habit.items():
            known = sum(row[outcome] for outcome in OUTCOMES)
            if known != row["sent"]:
                found.append(f"habit {name}: {row['sent']} sent, and the outcome of {known} known")
            if not row["right"]:
                found.append(f"habit {name}: not one right answer")
        quiet = sum(number for (who, route, near, _), number in self.errors.items() if near == "no act" and route not in FAILING)
        if quiet:
            found.append(f"{quiet} errors without an act, of servers that fail no call")
        found += [f"route {name}: not one right answer" for name, row in self.by_route.items() if not row["right"]]
        return found

    def print(self):
        columns = ["sent", *OUTCOMES, *PROGRESS, "twice"]
        for title, table in [("habit", self.by_habit), ("route", self.by_route), ("wire", self.by_wire)]:
            print(f"\n{title:<12}" + "".join(f"{name.replace('given_up', 'gave up'):>{width(name)}}" for name in columns))
            rows = sorted(table.items())
            for name, row in [*rows, ("all", sum((row for _, row in rows), collections.Counter()))]:
                print(f"{name:<12}" + "".join(f"{row[column]:>{width(column)}}" for column in columns))
        print("\nerrors, by who made them, route, and whether an act was near")
        for (who, route, near, words), number in sorted(self.errors.items(), key=lambda one: (one[0][:3], -one[1])):
            print(f"{number:>6} {who:<9}{route:<9}{near:<10} {words}"[:100])
        for one in self.oddities[:SHOWN_MAX]:
            print(textwrap.fill(one, 100, initial_indent="  ", subsequent_indent="    "))


def width(column):
    return {"milepost": 9, "progress": 9, "given_up": 8, "foreign": 8}.get(column, 7)
