"""`python3 -m milepost` runs the program. Not a byte of the protocol passes through Python."""

import os
import subprocess
import sys

from milepost import program


def main():
    try:
        command = [program(), *sys.argv[1:]]
        if os.name != "nt":
            # The program takes the place of this process, so that signals and the end of the process are its own.
            os.execv(command[0], command)
        # On Windows `execv` starts another process, and this one would end at once. Ctrl-C reaches both processes: the
        # program decides what follows.
        child = subprocess.Popen(command)
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue
    except OSError as error:
        print(f"milepost: {error}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
