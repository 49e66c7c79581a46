"""The user's cache folder: private, not the temporary folder that all users share."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_COMPILED = "TORCHINDUCTOR_CACHE_DIR"


def user_cache(name: str) -> Path:
    """Machine code is loaded from there, so that a relative XDG_CACHE_HOME, which its standard forbids, is not taken:
    it would lead into the folder shardwise is started in."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(stated) if os.path.isabs(stated) else Path.home() / ".cache") / "shardwise" / name


def keep_compiled_code_private() -> None:
    """torch makes a folder for it in the temporary one, under a name anyone can guess, as soon as an optimizer is
    made."""
    if _COMPILED in os.environ:
        return
    try:
        folder = user_cache("compiled")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):  # no home, or none that can be written to
        folder = Path(tempfile.mkdtemp(prefix="shardwise-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_COMPILED] = str(folder)
