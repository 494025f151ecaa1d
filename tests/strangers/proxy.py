"""`milepost serve` before the ten odd servers: its route file, its processes, and what it uses."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import servers

HERE = pathlib.Path(__file__).resolve().parent
ROUTES = [f"/{kind}" for kind in servers.STDIO + servers.HTTP]
DISK_MB = 256
KEPT = UNREAD = 64 << 20
# What the program uses before it serves, what it keeps for clients and servers, and what an allocator keeps for later.
BUDGET_MB = 40 + 2 * (KEPT >> 20) + (UNREAD >> 20)
# As in packaging/systemd/milepost.service. Without them glibc keeps freed memory, and its amount says nothing of Milepost.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}


class Disk:
    """A small disk of its own for temporary files and state, where this user may mount one; else a directory."""

    def __init__(self, place):
        self.place = place
        place.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(place)], capture_output=True)
        self.is_small = made.returncode == 0

    def fill(self):
        try:
            with open(self.place / "full", "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
        except OSError:
            pass

    def used(self):
        """Megabytes on a small disk: files without a name count, while somebody has them open."""
        found = os.statvfs(self.place)
        return (found.f_blocks - found.f_bfree) * found.f_frsize / (1 << 20) if self.is_small else 0

    def free(self):
        (self.place / "full").unlink(missing_ok=True)

    def remove(self):
        if self.is_small:
            subprocess.run(["umount", "-l", str(self.place)], capture_output=True)


class Proxy:
    """The program under test and its servers, in a temporary directory."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="milepost-strangers-"))
        self.disk = Disk(self.folder / "disk")
        self.ports = free_ports(2 + len(servers.HTTP))
        self.port, self.admin = self.ports[:2]
        self.web, self.generation, self.process = {}, 0, None
        self.file, self.log = self.folder / "proxy.toml", self.folder / "log"

    def start(self, program):
        self.program = program
        for kind in servers.HTTP:
            self.start_web(kind)
        self.write()
        known = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.disk.place), "XDG_RUNTIME_DIR": str(self.folder),
                 "PYTHONDONTWRITEBYTECODE": "1", **MALLOC}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([program, "serve", str(self.file), "--log-level", "warn"], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=known)
        self.pid = self.process.pid
        for port in self.ports:
            wait_for(port, self.process)

    def start_web(self, kind):
        port = self.ports[2 + servers.HTTP.index(kind)]
        self.web[kind] = subprocess.Popen([sys.executable, str(HERE / "servers.py"), kind, str(port)], stdin=subprocess.DEVNULL)

    def write(self):
        """Writes the route file of a generation: every second one has other settings and another command for `junk`."""
        odd = self.generation % 2
        text = f'''[server]
listen = "127.0.0.1:{self.port}"
max_kept_bytes = {KEPT}
max_unread_bytes = {UNREAD}
max_client_sessions = 0
max_client_children = 0
max_client_child_starts = 0
max_client_streams = 0
max_client_connections = 0
drain = "10s"
[admin]
listen = "127.0.0.1:{self.admin}"
[state]
dir = "{self.disk.place}/state"
[defaults]
heartbeat = {{ after = "{1 + odd}s", every = "1s" }}
'''
        for kind in servers.STDIO:
            mark = [str(odd)] if kind == "junk" else []
            command = json.dumps([sys.executable, "-IS", str(HERE / "servers.py"), kind, "stdio", str(self.folder), *mark])
            text += f'[[route]]\npath = "/{kind}"\nupstream.command = {command}\nupstream.idle_timeout = "12s"\nupstream.max_frame = 262144\n'
        for kind in servers.HTTP:
            port = self.ports[2 + servers.HTTP.index(kind)]
            upstream = f'upstream.sse = "http://127.0.0.1:{port}/sse"' if kind == "jobs" else f'upstream.url = "http://127.0.0.1:{port}/mcp"'
            text += f'[[route]]\npath = "/{kind}"\n{upstream}\nsession_idle_timeout = "12s"\nmax_sessions = 500\n'
            text += 'modern = true\ndialects = ["defaults", "jobs"]\n' if kind == "jobs" else ""
        text += '[[dialect]]\nname = "jobs"\nmethod = "notifications/job"\nrequest_id = "/params/requestId"\nprogress = "/params/progress"\n'
        self.file.write_text(text)
        self.file.chmod(0o600)

    def reload(self):
        self.generation += 1
        self.write()
        self.process.send_signal(signal.SIGHUP)

    def resident(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def descendants(self):
        """The processes that the program has started, and those that they have started."""
        found, unread = [], [self.pid]
        while unread:
            try:
                for task in pathlib.Path(f"/proc/{unread.pop()}/task").iterdir():
                    more = [int(pid) for pid in (task / "children").read_text().split()]
                    found += more
                    unread += more
            except OSError:
                pass
        return found

    def stdio_servers(self):
        """The stdio servers that run, and the route of each."""
        found = {}
        for pid in self.descendants():
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                continue
            if str(HERE / "servers.py") in words:
                found[pid] = "/" + words[words.index(str(HERE / "servers.py")) + 1]
        return found

    def gauges(self):
        """What the program has open and keeps, as its metrics have it, of all routes together."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()

        def total(*starts):
            return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(starts) and 'kind="server"' not in line)
        return {"kept": total("milepost_kept_bytes{"), "open": int(total("milepost_streams{", "milepost_children{", "milepost_sessions{")),
                "failed open": sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'reason="failed-open"' in line)}

    def end(self):
        """Ends the program; what of it is left."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(40)
        except subprocess.TimeoutExpired:
            return ["it did not end within 40 s of SIGTERM"]
        faults = [f"exit code {code}"] if code else []
        time.sleep(1)
        faults += [f"process left: {pid}" for pid in marked(str(self.folder)) if pid not in [one.pid for one in self.web.values()]]
        faults += [f"port {port} still listens" for port in self.ports[:2] if listens(port)]
        faults += [f"file left: {one.relative_to(self.folder)}" for one in self.folder.rglob("*") if one.is_socket()]
        faults += [f"temporary file left: {one.name}" for one in self.disk.place.iterdir() if one.name != "state"]
        faults += self.state_faults()
        text = self.log.read_text(errors="replace")
        faults += ["the log tells of a panic"] if "panic" in text else []
        print(f"ended with {code} after {time.monotonic() - began - 1:.1f} s")
        return faults

    def state_faults(self):
        """Whether the learned durations have outlived the full disks."""
        shown = subprocess.run([self.program, "stats", "--state-dir", str(self.disk.place / "state")], capture_output=True, timeout=30)
        return [] if b"work" in shown.stdout else [f"milepost stats shows no durations: {(shown.stdout + shown.stderr)[:200]}"]

    def remove(self, keep_log):
        for process in filter(None, [self.process, *self.web.values()]):
            if process.poll() is None:
                process.kill()
            process.wait()
        if keep_log and self.log.exists():
            kept = pathlib.Path(tempfile.gettempdir()) / "milepost-strangers.log"
            shutil.copy(self.log, kept)
            print(f"the log of the program: {kept}")
        self.disk.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def marked(mark):
    """Processes that have a text in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) != os.getpid() and mark.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
        except OSError:
            pass
    return found


def free_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wait_for(port, process=None):
    for _ in range(400):
        if listens(port):
            return
        if process and process.poll() is not None:
            raise SystemExit("milepost serve has ended at its start")
        time.sleep(0.05)
    raise SystemExit(f"nothing listens at port {port}")
