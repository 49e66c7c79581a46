"""Starts Python so that nothing is imported from the current folder.

That folder may be a stranger's, and a `numpy.py` in it would run. Imports `os` and `sys` only, which every interpreter
has loaded before it looks anywhere: `python -m shardwise` imports this file before anything else.
"""

import os
import sys

SAFE = "PYTHONSAFEPATH"
CODE_FOLDERS = ("PYTHONPATH", "SHARDWISE_PLUGINS")
"""variables that list folders with Python code"""
INSTALLED = ("site-packages", "dist-packages")
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def python_command(module: str, *words: str) -> list[str]:
    """`python -m`, without the working folder on its import path; start it with `python_environment()`."""
    return [sys.executable, "-P", "-m", module, *words]


def python_environment(**more: str) -> dict[str, str]:
    """Variables of a process that imports what this one would, whichever folder it is started in."""
    folders = {name: _absolute(os.environ[name]) for name in CODE_FOLDERS if os.environ.get(name)}
    if os.path.basename(_HOME) not in INSTALLED:
        paths = [path for path in folders.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", _HOME)]
        folders["PYTHONPATH"] = os.pathsep.join([_HOME, *paths])
    return {**os.environ, **folders, **more}


def program_beside(name: str) -> str:
    """The path of a program that is installed next to this Python."""
    return os.path.join(os.path.dirname(sys.executable), name)


class SafeChildren:
    """While it is entered, Python processes that a library starts import nothing from the working folder either."""

    def __enter__(self) -> None:
        changed = python_environment(**{SAFE: "1"})
        self._before = {name: os.environ.get(name) for name in (SAFE, *CODE_FOLDERS)}
        os.environ.update({name: changed[name] for name in self._before if name in changed})

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def leave_working_folder() -> None:
    """Takes the working folder off this process's import path, where `python -m` and an empty entry of PYTHONPATH put
    it; a source tree that is run from inside stays, behind everything else."""
    try:
        here = os.getcwd()
    except OSError:  # removed: nothing can be imported from it
        return
    if sys.path[:1] == [here] and not sys.flags.safe_path:
        del sys.path[0]
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if len(entries) > 1 and "" in entries and here not in entries and here in sys.path[: len(entries)]:
        sys.path.remove(here)
    if here == _HOME and here not in sys.path:
        sys.path.append(here)


def _absolute(folders: str) -> str:
    """An empty entry would be the working folder, a relative one another folder for who starts elsewhere."""
    return os.pathsep.join(os.path.abspath(folder) for folder in folders.split(os.pathsep) if folder)
