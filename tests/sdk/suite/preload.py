"""Programs of Python that start at once: a process has loaded what they need, and a fork of it runs each of them.

    preload.py serve SOCKET PROGRAM [ARG]...   loads PROGRAM without running it, and listens at SOCKET; ends with standard input
    preload.py run SOCKET PROGRAM [ARG]...     runs PROGRAM there with our streams, folder and environment, and ends as it does

To load the SDK takes most of the time of a short session with it. `run` loads little itself.
"""

import os
import socket
import sys


def run(path, words):
    import json

    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        request = json.dumps({"words": words, "env": dict(os.environ), "folder": os.getcwd()}).encode()
        socket.send_fds(link, [len(request).to_bytes(8, "big")], [0, 1, 2])
        link.sendall(request)
        code = link.recv(1)
    return code[0] if code else 1


def receive(link):
    import json

    head, streams, _, _ = socket.recv_fds(link, 8, 3)
    size, body = int.from_bytes(head, "big"), b""
    while len(body) < size:
        body += link.recv(size - len(body))
    return streams, json.loads(body)


def program(streams, words, env, folder):
    """The program, in a process of its own: returns its exit code."""
    import runpy
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = words
    sys.path[0] = os.path.dirname(words[0])
    code = 0
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def attend(link):
    """One connection: the program ends when the one that asked for it does."""
    import contextlib
    import signal
    import threading
    import time

    streams, request = receive(link)
    child = os.fork()
    if child == 0:
        link.close()
        os._exit(program(streams, request["words"], request["env"], request["folder"]))
    for stream in streams:
        os.close(stream)

    def follow():
        with contextlib.suppress(ProcessLookupError):
            if not link.recv(1):
                os.kill(child, signal.SIGTERM)
                time.sleep(5)
                os.kill(child, signal.SIGKILL)

    threading.Thread(target=follow, daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    link.sendall(bytes([code if code >= 0 else 128 - code]))


def serve(path, words):
    import runpy
    import select
    import signal

    sys.path[0] = os.path.dirname(words[0])
    sys.argv = words
    runpy.run_path(words[0], run_name="loaded")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        # Whoever sees the socket can connect.
        listener.bind(path + "~")
        listener.listen(64)
        os.rename(path + "~", path)
        while 0 not in select.select([listener, 0], [], [])[0]:
            link, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                try:
                    attend(link)
                finally:
                    os._exit(0)
            link.close()
    os.unlink(path)


if __name__ == "__main__":
    role = {"serve": serve, "run": run}[sys.argv[1]]
    sys.exit(role(sys.argv[2], sys.argv[3:]))
