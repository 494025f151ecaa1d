"""What agent frameworks do with tools, with and without Milepost: each trial is the MCP client of a framework before the
server of examples/agents. Prints two tables, and compares their rows with those of docs/agents.md.

    tests/frameworks/run [--update] [--jobs N] [NAME...]
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from frameworks import FRAMEWORKS, ROOT, NotInstalled, install

PAGE = ROOT / "docs/agents.md"
SERVER = ROOT / "examples/agents/server.py"

SECONDS = 75
"""The time of the slow tool: longer than any limit of a client here, the longest of which is 60 s."""

CALLS_MAX = 25
TRIAL_MAX = 200
"""Calls of the slow tool in one trial, and the seconds after which no further call begins."""

STUCK = TRIAL_MAX + 180
"""Seconds after which a driver is ended."""

APPLICATION = "trial"
"""The name that the drivers give where a framework lets its application name the client."""

SIDES = {"direct": None, "wrap": [], "late": ["--late"], "tell": ["--late", "--late-tell"]}
TRANSPORTS = ("stdio", "HTTP")
LATE = {"wrap": "", "late": "late = {}", "tell": "late = { tell = true }"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def end(process):
    """Ends a process, if need be without asking."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


class Trial:
    """One conversation, and afterwards what came of it: `calls` of the client, and `log`, the lines of the server."""

    def __init__(self, framework, transport, side, kind):
        self.framework, self.transport, self.side, self.kind = framework, transport, side, kind
        self.calls, self.log, self.shown, self.ended, self.processes = [], [], 0, None, []

    def start(self, *command):
        """Starts a process that is ended with the trial, by its own id."""
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.processes.append(process)
        return process

    def serve(self, milepost, folder, log):
        """Returns the URL of a server over HTTP, with or without Milepost in front."""
        url = self.start(sys.executable, str(SERVER), "--http", "0", "--log", str(log)).stdout.readline().strip()
        if self.side == "direct":
            return url
        port = free_port()
        file = folder / "proxy.toml"
        state = f'[state]\ndir = "{folder / "state"}"'
        route = f'[[route]]\npath = "/mcp"\nupstream.url = "{url}"\n{LATE[self.side]}'
        file.write_text(f'[server]\nlisten = "127.0.0.1:{port}"\n{state}\n{route}\n')
        self.start(milepost, "serve", str(file))
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        return f"http://127.0.0.1:{port}/mcp"

    def run(self, milepost, driver, place):
        with tempfile.TemporaryDirectory(prefix="milepost-", ignore_cleanup_errors=True) as folder:
            folder = Path(folder)
            log = folder / "log"
            task = {"framework": self.framework.name, "kind": self.kind, "seconds": SECONDS, "command": None, "url": None}
            task |= {"calls_max": CALLS_MAX, "trial_max": TRIAL_MAX}
            try:
                if self.transport == "stdio":
                    task["command"] = [sys.executable, str(SERVER), "--log", str(log)]
                    if self.side != "direct":
                        wrap = [milepost, "wrap", *SIDES[self.side], "--state-dir", str(folder / "state"), "--"]
                        task["command"] = wrap + task["command"]
                else:
                    task["url"] = self.serve(milepost, folder, log)
                self.drive([*driver, json.dumps(task)], place, folder)
            finally:
                for process in reversed(self.processes):
                    end(process)
            if log.exists():
                self.log = [json.loads(line) for line in log.read_text().splitlines()]
        return self

    def drive(self, command, place, folder):
        # A home of its own: what a framework stores or reads there is not this user's.
        # Agno starts only what is on PATH.
        environment = {**os.environ, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['MILEPOST_FOLDER']}:{os.environ['PATH']}"
        environment |= {"MCP_USE_ANONYMIZED_TELEMETRY": "false", "OTEL_SDK_DISABLED": "true", "CREWAI_DISABLE_TELEMETRY": "true"}
        try:
            done = subprocess.run(
                command, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STUCK
            )
        except subprocess.TimeoutExpired:
            self.ended = f"no end within {STUCK} s"
            return
        try:
            result = json.loads(done.stdout.rstrip().rpartition("\n")[2])
        except ValueError:
            self.ended = (done.stderr.strip().splitlines() or ["no result"])[-1]
            return
        self.calls, self.shown, self.ended = result["calls"], result["shown"], result["ended"]

    def messages(self, method):
        found = [line["message"] for line in self.log if "message" in line]
        return [message for message in found if message.get("method") == method]

    def reports(self):
        """The calls of the slow tool that the server got: so often the work ran."""
        return [call for call in self.messages("tools/call") if call["params"]["name"] == "report"]

    def answer_at(self):
        """The number of the call that got the answer, from 1; None if there was none."""
        if self.calls and "15 pages" in self.calls[-1]["given"]:
            return len(self.calls)
        return None

    def outcome(self):
        at = self.answer_at()
        words = {None: "never", 1: "first call"}.get(at, "later call")
        return words + (", work repeated" if len(self.reports()) > 1 else "")

    def cancelled(self):
        """Whether the server heard of a cancelled call, and whether the next call had its answer."""
        if not self.calls:
            return "no" if self.ended else "–"
        told = "yes" if self.messages("notifications/cancelled") else "no"
        return told + ("" if "Hello, you." in self.calls[-1]["given"] else ", next call fails")


class Results:
    """All trials of a framework."""

    def __init__(self, framework):
        self.framework, self.trials = framework, {}

    def add(self, trial):
        self.trials[trial.transport, trial.side, trial.kind] = trial

    def facts(self):
        """The row about the client: what it does without Milepost, on standard streams."""
        short, slow = self.trials["stdio", "direct", "short"], self.trials["stdio", "direct", "slow"]
        patient = self.trials["stdio", "wrap", "patient"]
        requests = [line["message"] for line in short.log if "message" in line]
        infos = [request["params"]["clientInfo"] for request in short.messages("initialize")]
        name = f"`{infos[0]['name']} {infos[0]['version']}`" if infos else "unknown"
        name = "chosen by its application" if infos and infos[0]["name"] == APPLICATION else name
        token = lambda trial: any("progressToken" in call["params"].get("_meta", {}) for call in trial.messages("tools/call"))  # noqa: E731
        sends = "always" if token(short) else "with its setting" if token(patient) else "never"
        gives_up = slow.answer_at() != 1 and bool(slow.calls)
        # A busy machine makes a time-out longer, never shorter.
        limit = f"{int(slow.calls[0]['seconds'] + 0.1)} s" if gives_up else "–"
        cancels = "–" if not gives_up else "yes" if slow.messages("notifications/cancelled") else "no"
        # The SDKs of 2026-07-28 ask one process what it speaks, and may start another one for the calls.
        called = lambda line: line.get("message", {}).get("method") == "tools/call"  # noqa: E731
        pids = lambda trial: len({line["pid"] for line in trial.log if called(line)})  # noqa: E731
        kept = "kept" if pids(slow) <= 1 else "a new one after a time-out"
        kept = kept if pids(short) <= 1 else "a new one for every call"
        first = f"`{requests[0]['method']}`" if requests else "none"
        return [self.framework.release, name, first, sends, limit, cancels, kept]

    def outcomes(self, transport):
        """The row about the trials on one transport."""
        of = lambda side, kind: self.trials[transport, side, kind]  # noqa: E731
        given = {side: [call["given"] for call in of(side, "short").calls] for side in SIDES}
        same = "same" if len(given["direct"]) == 4 and all(each == given["direct"] for each in given.values()) else "differs"
        cancelled = {side: of(side, "cancel").cancelled() for side in SIDES}
        is_one = len(set(cancelled.values())) == 1
        words = cancelled["direct"] if is_one else "; ".join(f"{side}: {what}" for side, what in cancelled.items())
        return [transport, same, *(of(side, "slow").outcome() for side in SIDES), words]

    def patience(self):
        patient = self.trials["stdio", "wrap", "patient"]
        return f"{patient.outcome()}, {'progress' if patient.shown else 'no progress'}"

    def worse(self):
        """What is worse with Milepost than without, and trials that could not be played."""
        for (transport, side, kind), trial in self.trials.items():
            where = f"{self.framework.title}, {transport}, {side}, {kind}"
            direct = self.trials.get((transport, "direct", kind), trial)
            if trial.ended and not trial.calls:
                yield f"{where}: {trial.ended}"
            elif kind == "short":
                for ours, theirs in zip(trial.calls, direct.calls):
                    if ours["given"] != theirs["given"]:
                        yield f"{where}: {ours['given'][:500]!r} and not {theirs['given'][:500]!r}"
            elif kind == "slow" and is_worse(trial, direct):
                yield f"{where}: {trial.outcome()} with {trial.calls[-1]['given'][:200]!r}, direct {direct.outcome()}"
            elif kind == "cancel" and direct.cancelled() == "yes" and trial.cancelled() != "yes":
                yield f"{where}: {trial.cancelled()}"


def is_worse(trial, direct):
    """Whether a client that gets the answer of the slow tool without Milepost loses by it. `tell` asks for a second call:
    this is no loss as long as the answer comes and the work runs once."""
    if direct.answer_at() is None:
        return False
    if trial.answer_at() is None or len(trial.reports()) > len(direct.reports()):
        return True
    return trial.side != "tell" and trial.answer_at() > direct.answer_at()


HEADS = {
    "clients": "| framework | release | calls itself | first request | sends a token | gives a call up after | cancels then | connection | as of |",
    "outcomes": "| framework | transport | short, image, structured, error | slow, direct | `wrap` | `--late` | `--late --late-tell` | the server hears of a cancelled call | with its settings |",
}
DATED = {"clients"}
"""The table whose last column says when a row was measured: this column is not compared."""


def rows_of(results):
    title, month = results.framework.title, date.today().strftime("%B %Y")
    clients = ["| " + " | ".join([title, *results.facts(), month]) + " |"]
    settings = {"stdio": results.patience(), "HTTP": ""}
    outcomes = ["| " + " | ".join([title, *results.outcomes(one), settings[one]]) + " |" for one in TRANSPORTS]
    return {"clients": clients, "outcomes": outcomes}


def split(page, table):
    """The page before the rows of a table, the rows, and the page behind."""
    lines = page.split("\n")
    begin = lines.index(HEADS[table]) + 2
    end = next(at for at in range(begin, len(lines)) if not lines[at].startswith("|"))
    return lines[:begin], lines[begin:end], lines[end:]


def compare(measured, is_update):
    """Compares the measured rows with those of the page, or writes them there. Returns the differences."""
    page, differences = PAGE.read_text(), []
    titles = [framework.title for framework in FRAMEWORKS]
    for table in HEADS:
        before, rows, behind = split(page, table)
        title = lambda row: row.split("|")[1].strip()  # noqa: E731
        told = lambda row: row.rsplit("|", 2)[0] if table in DATED else row  # noqa: E731
        for name, tables in measured.items():
            old = [row for row in rows if title(row) == name]
            if [told(row) for row in old] != [told(row) for row in tables[table]]:
                differences += [f"- {row}" for row in old] + [f"+ {row}" for row in tables[table]]
                rows = [row for row in rows if title(row) != name] + tables[table]
        rows.sort(key=lambda row: titles.index(title(row)))
        page = "\n".join([*before, *rows, *behind])
    if is_update:
        PAGE.write_text(page)
    return differences


def run_example(framework, command, place):
    """Runs the example of a framework as a reader would. Returns its fault, or an empty text."""
    folder = ROOT / "examples/agents" / framework.name
    environment = {**os.environ, "PATH": f"{os.environ['MILEPOST_FOLDER']}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    if framework.is_python:
        file = str(folder / "agent.py")
    else:
        # Node.js looks for packages from the place of a file.
        file = shutil.copy(folder / "agent.mjs", place / "agent.mjs")
    try:
        done = subprocess.run(
            [*command, file], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "no end within 120 s"
    is_right = done.returncode == 0 and "report" in done.stdout and "15 pages" in done.stdout
    return "" if is_right else f"exit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-3000:]}"


def play(framework, options, pool):
    """Begins all trials of a framework. Returns the fault of its example and the trials; none if it cannot be installed."""
    try:
        driver, command, place = install(framework, options.home)
    except NotInstalled as error:
        print(f"FAILED {framework.name} cannot be installed: {error}", flush=True)
        return "cannot be installed", []
    fault = run_example(framework, command, place)
    print(f"{'FAILED' if fault else 'ok':6} examples/agents/{framework.name}{': ' + fault if fault else ''}", flush=True)
    cells = [(transport, side, kind) for kind in ("slow", "short", "cancel") for transport in TRANSPORTS for side in SIDES]
    cells.append(("stdio", "wrap", "patient"))
    trials = [Trial(framework, *cell) for cell in cells]
    return fault and "the example fails", [pool.submit(trial.run, options.milepost, driver, place) for trial in trials]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"run these frameworks: {', '.join(f.name for f in FRAMEWORKS)}")
    parser.add_argument("--update", action="store_true", help="write the rows into docs/agents.md")
    parser.add_argument("--jobs", type=int, default=10, metavar="N", help="trials at the same time; most of them wait")
    parser.add_argument("--home", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--milepost", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.names) - {framework.name for framework in FRAMEWORKS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [framework for framework in FRAMEWORKS if not options.names or framework.name in options.names]
    os.environ["MILEPOST_FOLDER"] = str(Path(options.milepost).parent)
    measured, faults = {}, []
    with ThreadPoolExecutor(options.jobs) as pool:
        begun = [(framework, *play(framework, options, pool)) for framework in chosen]
        for framework, fault, waiting in begun:
            faults += [f"{framework.title}: {fault}"] if fault else []
            results = Results(framework)
            for future in waiting:
                results.add(future.result())
            if waiting:
                measured[framework.title] = rows_of(results)
            faults += results.worse()
    for table, head in HEADS.items():
        print(f"\n{head}\n{'|---' * (head.count('|') - 1)}|")
        print("\n".join(row for tables in measured.values() for row in tables[table]))
    differences = compare(measured, options.update)
    if differences:
        print(f"\n{'Written' if options.update else 'Other than'} in {PAGE.relative_to(ROOT)}:", *differences, sep="\n")
    if faults:
        print("\nWorse than without Milepost, or not played:", *faults, sep="\n")
    wrong = len(faults) + (0 if options.update else len(differences))
    print(f"\n{sum(len(waiting) + 1 for *_, waiting in begun) - len(faults)} passed, {wrong} failed")
    sys.exit(1 if wrong else 0)


main()
