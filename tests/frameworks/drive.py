"""Plays one trial in a framework of Python: reads its task from the first argument, as JSON, and prints what came of it.

The task has `framework`, `command` or `url`, `kind` (`short`, `slow`, `patient` or `cancel`), `seconds`, `calls_max` and
`trial_max` (seconds). Its result is a line of JSON with `calls`: what the agent was given or the error, and the seconds.
"""

import asyncio
import json
import re
import sys
import time
from types import SimpleNamespace

from clients import CLIENTS, IS_SYNCHRONOUS

SHORT = [("greet", {"name": "you"}), ("picture", {}), ("measure", {}), ("fail", {})]
CHANGING = re.compile(r"lc_[0-9a-f-]+|0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9]+\.[0-9]{4,}\b")
"""Parts of a result that differ from call to call: ids, addresses, measured times."""

LENGTH_MAX = 4000
"""Characters of a result that are kept."""


def chain(error):
    """The words of an error, with those of the errors in a group."""
    inner = [chain(part) for part in getattr(error, "exceptions", [])]
    return f"{type(error).__name__}: {'; '.join(inner) or error}"


async def one(call, name, arguments):
    began = time.monotonic()
    try:
        given = repr(await call(name, arguments))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # Whatever a framework raises is what its agent gets.
        given = chain(error)
    return {"given": CHANGING.sub("…", given)[:LENGTH_MAX], "seconds": time.monotonic() - began}


async def short(call, _task):
    return [await one(call, name, arguments) for name, arguments in SHORT]


async def slow(call, task):
    """Calls the tool until its answer is there, as a model does that was given an error or words."""
    calls, began = [], time.monotonic()
    while len(calls) < task.calls_max and time.monotonic() - began < task.trial_max:
        calls.append(await one(call, "report", {"seconds": task.seconds}))
        if "15 pages" in calls[-1]["given"]:
            break
        # A framework that lost its connection answers at once.
        if calls[-1]["seconds"] < 0.5:
            await asyncio.sleep(1)
    return calls


async def cancel(call, task):
    """Cancels a call after two seconds; the next call says whether the connection lives."""
    if task.framework in IS_SYNCHRONOUS:
        return []
    waiting = asyncio.ensure_future(one(call, "report", {"seconds": task.seconds}))
    await asyncio.sleep(2)
    waiting.cancel()
    await asyncio.wait([waiting], timeout=5)
    await asyncio.sleep(1)
    return [await one(call, "greet", {"name": "you"})]


async def main(task):
    shown = []
    show = lambda progress, total, message: shown.append([progress, total, message])  # noqa: E731
    patience = SimpleNamespace(seconds=task.seconds + 60, show=show) if task.kind == "patient" else None
    play = {"short": short, "slow": slow, "patient": slow, "cancel": cancel}[task.kind]
    calls, ended = [], None
    try:
        async with CLIENTS[task.framework](task, patience) as call:
            calls = await play(call, task)
    except Exception as error:
        ended = chain(error)
    print("\n" + json.dumps({"calls": calls, "shown": len(shown), "ended": ended}), flush=True)


asyncio.run(main(SimpleNamespace(**json.loads(sys.argv[1]))))
