"""Where files are kept for another day: in a folder of the user's own, not in the temporary one that all share."""

import os
from pathlib import Path

_COMPILED = "TORCHINDUCTOR_CACHE_DIR"


def user_cache(name: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardwise" / name


def keep_compiled_code_private() -> None:
    """torch makes a folder for it in the temporary one, under a name anyone can guess, as soon as an optimizer is
    made."""
    if _COMPILED in os.environ:
        return
    folder = user_cache("compiled")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return
    os.environ[_COMPILED] = str(folder)
