"""What the hosts do with slow tools, with and without Milepost: each trial is a host in a terminal, before an example
server, with a stand-in for the model's service. Prints a line for each trial and, at the end, how many were as expected.

    tests/hosts/run [--only WORDS] [--pictures FOLDER] [--screens]
"""

import argparse
import json
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path

import picture
from hosts import ASK, HOSTS, ClaudeCode, Cline, Codex, Continue, Copilot, GeminiCli, OpenCode, QwenCode
from model import Model

TRIAL_MAX = 180
"""Seconds for one trial, with the start of its host, on a busy machine."""

NO_TOOL_MAX = 60
"""Seconds for one trial of a host that loses its connection to the server and never knows the tool."""

RANKS = {"tool": "pagerank", "arguments": {"repository": "shop", "branch": "main"}}
FIGURES = re.compile(r"iteration \d+/20")
RANKED = re.compile(r'iterationsCompleted\W+20')
BEAT = re.compile(r"running \d+ ?s")


class Trial:
    """A host before a server, and afterwards what came of it."""

    def __init__(self, host, server, tool, arguments, wrap=None, calls=1, calls_max=1, shows=FIGURES, later=None, **clocks):
        self.host, self.server, self.wrap, self.clocks = host, server, wrap, clocks
        self.model = (tool, arguments, calls, calls_max)
        # What the model is told after its answer, where the host goes on with the work by itself.
        self.shows, self.later, self.told_later = shows, later, False
        self.answered = self.showed = False
        self.longest = TRIAL_MAX
        self.results, self.outside, self.works, self.seconds, self.screens = [], set(), 0, 0.0, []
        self.pictured = None

    def run(self, options):
        """Runs the trial; takes the picture of the latest screen with at least three quarters of the work done."""
        model = Model(*self.model)
        with tempfile.TemporaryDirectory(dir=options.home, prefix="home-", ignore_cleanup_errors=True) as home:
            host = self.host(home, options.packages, model, **self.clocks)
            if host.program is None:
                raise SystemExit(f"tests/hosts: no {self.host.binary} in {options.packages}")
            asked = Path(home, "asked")
            server = [f"{options.target}/examples/{self.server[0]}", *self.server[1:]]
            # What the server reads is written down: so often did the work run.
            counted = ["sh", "-c", f"tee {shlex.quote(str(asked))} | {shlex.join(server)}"]
            wrapped = [f"{options.target}/milepost", "wrap", *self.wrap, "--", *counted] if self.wrap is not None else counted
            terminal = host.start(wrapped)
            try:
                self.follow(host, terminal, asked, model)
            finally:
                terminal.close()
                host.end()
                model.close()
            self.results, self.outside, self.screens = model.results, model.outside, terminal.screens
            self.works = count(asked, '"tools/call"')
        return self

    def follow(self, host, terminal, asked, model):
        if host.types:
            terminal.until(lambda _: count(asked, '"tools/list"'), TRIAL_MAX / 2)
            terminal.until(lambda _: False, 1.5)
            terminal.type(ASK)
            terminal.type("\r")
        begun = None

        def seen(text):
            nonlocal begun
            if begun is None and count(asked, '"tools/call"'):
                begun = time.monotonic()
            if self.shows.search(text):
                self.showed = True
            if begun and re.search(r"iteration 1[45]/20", text) or begun and self.wrap is None and time.monotonic() - begun > 7:
                self.pictured = self.pictured or picture.lines(terminal.screen)

        self.answered = terminal.until(lambda text: "has answered" in text, self.longest, seen)
        if self.answered and self.later:
            self.told_later = terminal.until(lambda _: self.later.search(json.dumps(model.seen)), TRIAL_MAX, seen)
        self.seconds = time.monotonic() - (begun or terminal.began)


def count(file, text):
    return file.read_text(errors="replace").count(text) if file.exists() else 0


def kuzumem(pace="500ms"):
    return ["kuzumem", "--generation", "k1", "--pace", pace]


def of_progress(host, shows):
    """A server that reports under a method of its own: whose client shows it, and the answer."""
    for wrap, expected in ((None, False), ([], shows)):
        trial = Trial(host, kuzumem(), **RANKS, wrap=wrap)
        yield "progress", trial, lambda t, e=expected: {
            "the answer is right": t.answered and len(t.results) == 1 and RANKED.search(t.results[0]),
            f"the screen shows {'the' if e else 'no'} progress": t.showed == e,
        }


def of_junk(host, shows):
    """The same server, before a host that drops the server without Milepost."""
    for wrap in (None, []):
        trial = Trial(host, kuzumem(), **RANKS, wrap=wrap)
        if wrap is None:
            trial.longest = NO_TOOL_MAX
        yield "progress", trial, lambda t, e=wrap is not None: {
            "the answer is right" if e else "the host has no such tool": t.answered == e and (not e or bool(RANKED.search(t.results[0]))),
            f"the screen shows {'the' if e and shows else 'no'} progress": t.showed == (e and shows),
        }


def of_long(host, alone, answered):
    """A silent server that works for 90 s, before a host with its own settings: what comes of it without and with Milepost."""
    for wrap, expected in ((None, alone), ([], answered)):
        trial = Trial(host, ["silent"], "sleep", {"seconds": 90}, wrap=wrap, shows=BEAT)
        yield "a tool of 90 s", trial, lambda t, e=expected: {
            f"the host {'gets the answer' if e else 'gives up'}": t.answered and ("slept for 90s" in "".join(t.results)) == e,
        }


def of_glue(host):
    """A server that reports 100 % and answers in one write, three times: the host has to be alive at the end."""
    for wrap in (None, []):
        trial = Trial(host, ["silent"], "burst", {"seconds": 0.3}, wrap=wrap, calls=3)
        yield "progress with the answer", trial, lambda t: {
            "all three answers are right": t.answered and [r.split()[-1] for r in t.results] == ["done"] * 3
        }


def of_silence(host, seconds):
    """A server that works for so long without a word, before a host that waits 6 s for a sign of life."""
    for wrap, answered in ((None, False), ([], True)):
        trial = Trial(host, ["silent"], "sleep", {"seconds": seconds}, wrap=wrap, shows=BEAT, idle=6)
        yield "a silent tool", trial, lambda t, e=answered: {
            "the host gets the answer" if e else "the host gives up": t.answered
            and (f"slept for {seconds}s" in "".join(t.results)) == e
        }


def of_clock(host):
    """A server that works for 14 s, before a host that waits for 6 s whatever happens, and a model that calls again."""
    for wrap, once in ((None, False), (["--late"], True)):
        trial = Trial(host, ["silent"], "sleep", {"seconds": 14}, wrap=wrap, calls_max=6 if once else 3, shows=BEAT, clock=6)
        yield "a fixed clock", trial, lambda t, e=once: {
            "the host gets the answer" if e else "the host never gets the answer": t.answered
            and ("slept for 14" in t.results[-1]) == e,
            "the work runs once" if e else "the work runs each time": t.works == (1 if e else 3),
        }


def of_task(host):
    """A server of 2025-06-18 that knows no tasks, and works for 16 s: its call goes on as a task, and the host tells the model the
    answer when the task is over."""
    task = ["--modern", "--tasks", "--tasks-after", "3s"]
    for wrap in (None, task):
        later = wrap and re.compile(r'iterationsCompleted\W+20')
        trial = Trial(host, kuzumem("800ms"), **RANKS, wrap=wrap, later=later)
        yield "a task", trial, lambda t, e=bool(wrap): {
            "the host goes on at once" if e else "the host waits": t.answered and ("server-side task" in t.results[0]) == e,
            "the answer is right": t.told_later if e else RANKED.search(t.results[0]),
            "the work runs once": t.works == 1,
        }


TRIALS = [
    *of_progress(ClaudeCode, shows=True),
    *of_progress(OpenCode, shows=False),
    *of_progress(Codex, shows=False),
    *of_progress(Copilot, shows=True),
    *of_progress(Continue, shows=False),
    *of_junk(GeminiCli, shows=True),
    *of_junk(QwenCode, shows=True),
    *of_junk(Cline, shows=False),
    *(trial for host in HOSTS for trial in of_glue(host)),
    # Claude Code looks at its clock every 30 s.
    *of_silence(ClaudeCode, 45),
    *of_silence(OpenCode, 14),
    *of_clock(ClaudeCode),
    *of_clock(Codex),
    *of_task(ClaudeCode),
    *of_long(GeminiCli, True, True),
    *of_long(QwenCode, True, True),
    *of_long(Copilot, True, True),
    *of_long(Cline, False, False),
    *of_long(Continue, False, False),
]


def version(host, packages):
    return json.loads(Path(packages, host.package, "package.json").read_text())["version"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--packages", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--target", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", metavar="WORDS", help="run the trials whose names have all these words")
    parser.add_argument("--pictures", metavar="FOLDER", help="write the pictures of Claude Code there")
    parser.add_argument("--screens", action="store_true", help="print the last screen of each trial")
    options = parser.parse_args()
    passed = failed = 0
    pictures = {}
    for what, trial, facts in TRIALS:
        side = "with Milepost" if trial.wrap is not None else "alone"
        name = f"{trial.host.name} {version(trial.host, options.packages)}, {what}, {side}"
        if not all(word in name for word in options.only.split()):
            continue
        facts = facts(trial.run(options))
        wrong = [fact for fact, is_true in facts.items() if not is_true]
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print(f"{'FAILED' if wrong else 'ok':6} {name}: {'; '.join(wrong or facts)} ({trial.seconds:.1f} s, {trial.works} of work)", flush=True)
        if trial.outside:
            print(f"       refused to leave this machine: {', '.join(sorted(trial.outside))}")
        if wrong or options.screens:
            print("\n".join(line.rstrip() for line in trial.screens[-1][1].splitlines() if line.strip()))
            print(f"       results: {trial.results}")
        if trial.host is ClaudeCode and what == "progress":
            pictures[side] = trial.pictured
    if options.pictures:
        for side, name in (("alone", "claude-code-before.svg"), ("with Milepost", "claude-code-after.svg")):
            if pictures.get(side):
                Path(options.pictures, name).write_text(picture.svg(pictures[side]))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
