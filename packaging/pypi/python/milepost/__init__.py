"""The program Milepost, a proxy for MCP, as a package: `python3 -m milepost`, or `milepost` on PATH."""

import os
import sys
import sysconfig
from importlib import metadata

NAME = "milepost.exe" if os.name == "nt" else "milepost"


def program():
    """Returns the path of the program that pip has installed with this package.

    Raises FileNotFoundError if the program is in none of the folders where pip installs programs.
    """
    for path in _places():
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise FileNotFoundError(
        f"the program {NAME} of this package is missing: install the package again, with "
        f"`{sys.executable} -m pip install --force-reinstall milepost`"
    )


def _places():
    # The list of installed files is right for every prefix. For `pip install --target` the list names a folder that
    # does not exist, because pip moves the programs to `bin` beside the package.
    try:
        files = metadata.files("milepost") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == NAME:
            yield file.locate()
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", NAME)
    yield os.path.join(sysconfig.get_path("scripts"), NAME)
