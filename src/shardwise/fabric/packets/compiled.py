"""Compiles the event loop where numba is installed (`pip install 'shardwise[packets]'`).

Without it Python runs the very same code, to the same numbers, a hundred times slower.
"""

import os
from collections.abc import Callable
from contextlib import chdir, nullcontext
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from shardwise.user_cache import user_cache

Function = TypeVar("Function", bound=Callable[..., Any])
COMPILED = find_spec("numba") is not None and not os.environ.get("NUMBA_DISABLE_JIT")

NUMBA_SETTINGS = ".numba_config.yaml"


def _folder() -> Path:
    """Machine code is kept by what the source files say: numba would look only at the file of the function entered."""
    said = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        said.update(path.read_bytes())
    return user_cache(f"packets-{said.hexdigest()[:12]}")


OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
"""nothing is allocated inside, so no references are counted: that alone halves compile and run time"""


def _numba() -> Any:
    """Its own annotations leave out what is asked of it here. From a `.numba_config.yaml` in the working folder it
    would take settings, folders of machine code among them: not where it is imported elsewhere and then looks for
    another name.
    """
    with chdir(Path(__file__).parent) if os.path.exists(NUMBA_SETTINGS) else nullcontext():
        numba = import_module("numba")
    numba.core.config._config_fname = os.devnull
    return numba


def compiled(function: Function) -> Function:
    """Called by compiled functions alone; what is kept of it is part of the function that is entered."""
    if not COMPILED:
        return function
    return _numba().njit(no_cpython_wrapper=True, **OPTIONS)(function)  # type: ignore[no-any-return]


def entered(function: Function) -> Function:
    """Called from Python; kept on disk once it is compiled."""
    if not COMPILED:
        return function
    numba = _numba()
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_folder())
    try:
        return numba.njit(cache=True, **OPTIONS)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder can be written to: compiled anew in every process
        return numba.njit(**OPTIONS)(function)  # type: ignore[no-any-return]
    finally:
        numba.config.CACHE_DIR = before
