"""The hosts: how each is set up without an account, started in a terminal and asked, and what its screen shows."""

import json
import os
from pathlib import Path

from terminal import Terminal

ASK = "Rank the components of shop."
SERVER = "memory"

QUIET = {
    "DO_NOT_TRACK": "1",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "NO_PROXY": "127.0.0.1,localhost",
}
"""The environment of every host. The environment of the test is not passed on, so that no account is found."""


class Host:
    """One host in a home of its own.

    `idle` is the time in seconds after which the host gives a silent call up, `clock` its limit for a call whatever
    happens; both where set. A host that `types` is asked at its prompt, the others by their command line.
    """

    name = package = binary = ""
    types = False

    def __init__(self, home, packages, model, idle=None, clock=None):
        self.home, self.model, self.idle, self.clock = Path(home), model, idle, clock
        self.program = next(Path(packages).glob(self.binary), None)
        self.project = self.home / "shop"
        self.project.mkdir(parents=True)
        self.environment = {**QUIET, "HOME": str(home), "PATH": os.environ["PATH"]}
        # Nothing but loopback: what a host asks of other machines goes to the stand-in, which refuses.
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            self.environment[name] = model.url

    def write(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, server):
        """Writes the host's files for a server's command, and starts the host in a terminal."""
        return Terminal([str(self.program), *self.set_up(server)], self.environment, self.project)

    def set_up(self, server):
        raise NotImplementedError


class ClaudeCode(Host):
    name, package = "Claude Code", "@anthropic-ai/claude-code"
    binary = "@anthropic-ai/claude-code-*/claude"
    types = True

    def set_up(self, server):
        seen = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        state = {
            "hasCompletedOnboarding": True,
            "hasSeenAutoDefaultNudge": True,
            "hasSeenAutoDefaultNotice": True,
            "theme": "dark",
            "projects": {str(self.project): seen},
        }
        self.write(".claude.json", json.dumps(state))
        permissions = {"allow": [f"mcp__{SERVER}"], "defaultMode": "default"}
        self.write(".claude/settings.json", json.dumps({"permissions": permissions}))
        entry = {"command": server[0], "args": server[1:]}
        servers = self.write("mcp.json", json.dumps({"mcpServers": {SERVER: entry}}))
        self.environment |= {
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_AUTH_TOKEN": "stand-in",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            "ENABLE_TOOL_SEARCH": "false",
        }
        if self.clock:
            self.environment["MCP_TOOL_TIMEOUT"] = str(self.clock * 1000)
        if self.idle:
            self.environment["CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT"] = str(self.idle * 1000)
        return ["--mcp-config", str(servers), "--strict-mcp-config"]


class OpenCode(Host):
    name, package = "opencode", "opencode-ai"
    binary = "opencode-linux-*/bin/opencode"

    def set_up(self, server):
        model = {"name": "Stand-in", "tool_call": True, "limit": {"context": 200000, "output": 8000}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Stand-in",
            "options": {"baseURL": f"{self.model.url}/v1", "apiKey": "stand-in"},
            "models": {"stand-in": model},
        }
        entry = {"type": "local", "command": server, "enabled": True}
        if self.idle:
            entry["timeout"] = self.idle * 1000
        settings = {
            "provider": {"stand-in": provider},
            "model": "stand-in/stand-in",
            "small_model": "stand-in/stand-in",
            "enabled_providers": ["stand-in"],
            "mcp": {SERVER: entry},
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow",
        }
        self.write(".config/opencode/opencode.json", json.dumps(settings))
        self.environment |= {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
        return ["--prompt", ASK]


class Codex(Host):
    name, package = "Codex", "@openai/codex"
    binary = "@openai/codex-*/vendor/*/bin/codex"

    def set_up(self, server):
        limit = f"tool_timeout_sec = {self.clock}" if self.clock else ""
        self.write(
            ".codex/config.toml",
            f"""
model = "stand-in"
model_provider = "stand-in"
approval_policy = "never"
sandbox_mode = "read-only"
check_for_update_on_startup = false

[features]
apps = false
daemon_auto_start = false
plugins = false

[analytics]
enabled = false

[model_providers.stand-in]
name = "Stand-in"
base_url = "{self.model.url}/v1"
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false

[projects.{json.dumps(str(self.project))}]
trust_level = "trusted"

[mcp_servers.{SERVER}]
command = {json.dumps(server[0])}
args = {json.dumps(server[1:])}
default_tools_approval_mode = "approve"
{limit}
""",
        )
        self.environment["CODEX_HOME"] = str(self.home / ".codex")
        return ["--no-daemon", ASK]


HOSTS = [ClaudeCode, OpenCode, Codex]
