"""Where a terminal's questions look for a profile without `--profile`: `shardwise.toml` of the working folder, then the
user's own. Only the command line looks: the page, agents and Python say which one they use."""

import os
from contextvars import ContextVar
from pathlib import Path

HERE = "shardwise.toml"
PLACES: ContextVar[tuple[Path, ...]] = ContextVar("PLACES", default=())


def look_in_usual_places() -> None:
    stated = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(stated) if os.path.isabs(stated) else Path(os.path.expanduser("~")) / ".config"
    PLACES.set((Path(HERE), home / "shardwise" / "profile.toml"))
