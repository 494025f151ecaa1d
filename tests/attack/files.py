"""Attacks by links, modes and full disks."""
import json
import os
import pathlib
import stat
import subprocess
import time

import tools
from tools import SERVER, Serve, attack, begin, call, folder, post, stdio, until, INITIALIZE, MODERN, modern


@attack
def links_in_the_place_of_the_token():
    """A link, a readable file and a folder where the token of operators will be written."""
    told = []
    for kind in ["link to a file", "link to nothing", "readable file", "hard link"]:
        place = folder()
        state, victim = place / "state", place / "victim"
        state.mkdir(mode=0o700)
        token = state / "admin-token"
        known = "k" * 43
        if kind == "link to a file":
            victim.write_text("precious")
            token.symlink_to(victim)
        elif kind == "link to nothing":
            token.symlink_to(victim)
        elif kind == "readable file":
            token.write_text(known)
            os.chmod(token, 0o644)
        else:
            victim.write_text(known)
            os.chmod(victim, 0o644)
            os.link(victim, token)
        serve = Serve(stdio(), state=state)
        time.sleep(0.3)
        if kind == "link to nothing":
            assert not victim.exists(), "the link was followed"
        elif victim.exists():
            assert victim.read_text() in ("precious", known), victim.read_text()
        status, _ = serve.ask(tools.get("/calls", serve.admin, [f"Authorization: Bearer {known}"]), serve.admin)
        assert status == 401, (kind, status)
        if not token.is_symlink():
            assert stat.S_IMODE(token.stat().st_mode) == 0o600, oct(token.stat().st_mode)
        told.append(kind)
    return f"{', '.join(told)}: not followed, not believed, mode 600"


@attack
def links_in_folders_of_recordings():
    """Links with the names that recordings may get, and a race of links while recordings begin."""
    place = folder()
    records, victim = place / "records", place / "victim"
    records.mkdir()
    victim.write_text("precious")
    stamp = time.strftime("%Y%m%d")
    for number in range(500):
        (records / f"{stamp}-{number}").symlink_to(victim)
        (records / f"milepost-{number}.txt").symlink_to(victim)
    serve = Serve(stdio(), options=["--record", str(records)])
    for _ in range(20):
        before = set(os.listdir(records))
        serve.ask(post(INITIALIZE))
        # Whoever sees a new file puts a link in the place of the next number of it.
        for new in set(os.listdir(records)) - before:
            digits = "".join(sign for sign in new if sign.isdigit())
            for more in range(1, 4):
                other = new.replace(digits[-2:], f"{(int(digits[-2:] or 0) + more) % 100:02}", 1) if len(digits) > 1 else new + "x"
                try:
                    (records / other).symlink_to(victim)
                except OSError:
                    pass
    serve.process.terminate()
    serve.process.wait(30)
    made = [one for one in records.iterdir() if not one.is_symlink()]
    assert victim.read_text() == "precious", "a recording was written through a link"
    assert made, serve.log()[-500:]
    assert all(stat.S_IMODE(one.stat().st_mode) & 0o077 == 0 for one in made), "others can read a recording"
    return f"{len(made)} recordings beside 1,000 links, the file behind the links is unchanged"


@attack
def route_files_of_others():
    """A file that everybody may write and that names commands, with --strict-files and without."""
    place = folder()
    file = place / "proxy.toml"
    file.write_text('[server]\nlisten = "127.0.0.1:0"\n[[route]]\npath = "/a"\nupstream.command = ["touch", "%s"]\n' % (place / "ran"))
    os.chmod(file, 0o666)
    checked = subprocess.run([tools.PROGRAM, "check", str(file)], capture_output=True, timeout=20)
    strict = subprocess.run([tools.PROGRAM, "check", "--strict-files", str(file)], capture_output=True, timeout=20)
    assert strict.returncode != 0, strict.stdout
    text = checked.stdout + checked.stderr
    assert b"write" in text or b"writ" in text, text
    assert not (place / "ran").exists()
    return "a warning, and refused by --strict-files"


@attack
def spill_files_that_are_full():
    """30 answers of 8 MB for clients that do not read, with 32 MB for files, and a folder without room."""
    text = SERVER.replace('"text": "for " + str(said["id"])', '"text": "x" * (8 << 20)')
    told = []
    for name, keys, environment in [("32 MB", "max_spilled_bytes = 33_554_432", {}), ("no folder", "", {"TMPDIR": "/nonexistent"})]:
        serve = Serve(stdio(text, "upstream.max_frame = 65536"), server=keys, environment=environment)
        before, made, errors = serve.resident(), [], 0
        for number in range(30):
            body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "t", "arguments": {}, "_meta": MODERN}}
            one = serve.open()
            one.sendall(modern(body, "t").encode())
            made.append(one)
        time.sleep(6)
        grown = serve.resident() - before
        held = sum(one.stat().st_size for one in serve.folder.iterdir() if one.is_file() and one.name not in ("log", "proxy.toml"))
        for one in made:
            one.settimeout(10)
            _, got = tools.answer_of(one)
            errors += len(got) < 1 << 20
            one.close()
        assert grown < 160 and errors, (name, grown, errors)
        assert held < 40 << 20, held
        assert serve.ask(tools.get("/livez", serve.admin), serve.admin)[0] == 200
        until("files are gone", lambda: not any("spill" in one.name for one in serve.folder.iterdir()), 10)
        told.append(f"{name}: {errors} of 30 got an error, {grown:.0f} MB more")
    return "; ".join(told)


@attack
def folders_that_cannot_be_written():
    """A state folder that is a file, one that belongs to nobody, and a recording to a full device."""
    place = folder()
    (place / "file").write_text("x")
    for state in [place / "file", pathlib.Path("/proc/nowhere"), pathlib.Path("/dev/full")]:
        serve = Serve(stdio(), state=state)
        serve.is_served()
        tools.end_all()
    return "3 folders, clients are served"


# Walks a folder and connects to each socket, as another user; prints what it could read, write or speak to.
STRANGER = '''
import os, socket, sys
os.setgid(65534); os.setgroups([]); os.setuid(65534)
def tell(*words):
    print(*words, flush=True)
for root in sys.argv[1:]:
    for where, folders, names in os.walk(root):
        for name in folders + names:
            path = os.path.join(where, name)
            if path.endswith(".sock"):
                one = socket.socket(socket.AF_UNIX)
                one.settimeout(2)
                try:
                    one.connect(path)
                    one.sendall(b"GET /calls HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
                    if one.recv(100):
                        tell("spoke to", path)
                except OSError:
                    pass
            elif os.path.isfile(path) and os.access(path, os.R_OK):
                tell("reads", path)
            if os.access(path, os.W_OK) and not os.path.islink(path):
                tell("writes", path)
tell("done")
'''


# A socket of another user, which tells what is said to it.
FAKE = '''
import os, socket, sys
os.setgid(65534); os.setgroups([]); os.setuid(65534)
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[1])
one.listen()
one.settimeout(4)
heard = b""
try:
    made, _ = one.accept()
    made.settimeout(2)
    heard = made.recv(1000)
except OSError:
    pass
print("heard", heard or "nothing", flush=True)
'''


def stranger(*roots):
    """What another user of this machine finds below these folders; nothing where this user may not become another."""
    if os.getuid() != 0:
        return None
    found = subprocess.run(["python3", "-c", STRANGER, *map(str, roots)], capture_output=True, timeout=60)
    assert b"done" in found.stdout, found.stderr[-300:]
    return found.stdout.decode().splitlines()[:-1]


@attack
def state_and_sockets_without_a_umask():
    """All files and sockets of `serve` and `wrap` with umask 000, in folders that everybody may enter, for another user."""
    place = folder()
    os.chmod(place, 0o755)
    runtime, state, records = place / "runtime", place / "state", place / "records"
    for one in [runtime, records]:
        one.mkdir()
        os.chmod(one, 0o777)
    old = os.umask(0)
    try:
        serve = Serve(stdio(more="cached_start = true\nlate = {}\nestimate = true"), options=["--record", str(records)], state=state,
                      environment={"XDG_RUNTIME_DIR": str(runtime)})
        wrap = subprocess.Popen([tools.PROGRAM, "wrap", "--record", str(records), "--", "python3", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "HOME": str(place), "XDG_RUNTIME_DIR": str(runtime), "MILEPOST_STATE_DIR": str(state)})
        tools.RUNNING.append(wrap)
    finally:
        os.umask(old)
    wrap.stdin.write(INITIALIZE.encode() + b"\n")
    wrap.stdin.flush()
    session = begin(serve)
    for number in range(5):
        serve.ask(call(number, session=session, token=number))
    time.sleep(1.5)
    made = [one for root in [runtime, state, records] for one in root.rglob("*")]
    for one in made:
        mode = stat.S_IMODE(one.lstat().st_mode)
        assert mode & 0o077 == 0, (str(one), oct(mode))
    sockets = [one for one in made if stat.S_ISSOCK(one.lstat().st_mode)]
    assert len(sockets) >= 2, made
    found = stranger(place)
    ours = [f"writes {one}" for one in [runtime, records]]
    found = found and [line for line in found if line not in ours]
    assert not found, found
    who = "another user gets nothing" if found is not None else "not tried as another user"
    return f"{len(made)} files, {len(sockets)} of them sockets, all of this user alone; {who}"


@attack
def links_and_folders_of_others_in_the_place_of_sockets():
    """A link, a file, a folder of another user and one that all may enter, where the folder of sockets will be."""
    told = []
    for kind in ["link", "dangling link", "file", "open folder", "folder of another user"]:
        if kind == "folder of another user" and os.getuid() != 0:
            continue
        place = folder()
        os.chmod(place, 0o755)
        runtime, victim = place / "runtime", place / "victim"
        runtime.mkdir()
        own = runtime / "milepost"
        if kind == "link":
            victim.mkdir()
            os.chmod(victim, 0o777)
            own.symlink_to(victim)
        elif kind == "dangling link":
            own.symlink_to(victim)
        elif kind == "file":
            own.write_text("precious")
        else:
            own.mkdir()
            os.chmod(own, 0o777)
            if kind != "open folder":
                os.chown(own, 65534, 65534)
        serve = Serve(stdio(), environment={"XDG_RUNTIME_DIR": str(runtime)})
        serve.is_served()
        time.sleep(0.3)
        elsewhere = list(victim.iterdir()) if victim.is_dir() else []
        assert not elsewhere, elsewhere
        assert kind != "dangling link" or not victim.exists(), "the link was followed"
        assert kind != "file" or own.read_text() == "precious"
        if kind == "open folder":
            assert stat.S_IMODE(own.stat().st_mode) == 0o700, oct(own.stat().st_mode)
        elif own.is_dir() and not own.is_symlink():
            assert not list(own.iterdir()), "a socket in a folder of another user"
        # Who looks on as this user must not speak to a socket that another user has put there.
        if kind == "folder of another user":
            path = own / f"serve-{serve.process.pid}-00000000.sock"
            fake = subprocess.Popen(["python3", "-c", FAKE, str(path)], stdout=subprocess.PIPE)
            tools.RUNNING.append(fake)
            until("the false socket", path.exists)
            subprocess.run([tools.PROGRAM, "tap"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20,
                           env={"PATH": "/usr/bin:/bin", "HOME": str(place), "XDG_RUNTIME_DIR": str(runtime)})
            said = fake.communicate(timeout=10)[0]
            assert b"heard nothing" in said, ("told to a socket of another user", said)
        told.append(kind)
    return f"{', '.join(told)}: no socket there, clients are served"


@attack
def links_in_the_folder_of_the_state():
    """Links in the place of every file that Milepost keeps: durations, kept starts, and the folder of starts."""
    place = folder()
    state, victim = place / "state", place / "victim"
    # A first life, to learn the names.
    serve = Serve(stdio(more="cached_start = true"), state=state)
    session = begin(serve)
    serve.ask(call(1, session=session))
    time.sleep(1)
    serve.process.terminate()
    serve.process.wait(20)
    names = [one.relative_to(state) for one in state.rglob("*") if one.is_file()]
    assert names
    for name in names:
        victim.write_text("precious")
        os.chmod(victim, 0o644)
        path = state / name
        path.unlink()
        path.symlink_to(victim)
        serve = Serve(stdio(more="cached_start = true"), state=state)
        session = begin(serve)
        serve.ask(call(1, session=session))
        time.sleep(1)
        serve.process.terminate()
        serve.process.wait(20)
        assert victim.read_text() == "precious" and stat.S_IMODE(victim.stat().st_mode) == 0o644, name
        if path.is_symlink():
            path.unlink()
    # Only a folder that others may write can have a link of another user.
    os.chmod(state, 0o777)
    serve = Serve(stdio(more="cached_start = true"), state=state)
    begin(serve)
    time.sleep(1)
    mode = stat.S_IMODE(state.stat().st_mode)
    assert mode & 0o022 == 0 or "state" in serve.log(), oct(mode)
    return f"{len(names)} files, and a folder that all may write (then {oct(mode)}): {', '.join(str(name)[:24] for name in names)}: no link was followed"
