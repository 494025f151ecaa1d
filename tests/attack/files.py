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
