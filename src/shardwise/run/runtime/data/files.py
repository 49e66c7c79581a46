"""The text files that folders, patterns and names mean, in an order that does not depend on the machine."""

import glob
from collections.abc import Sequence
from pathlib import Path

MOST_FILES = 100_000


def files_of(asked: Sequence[str], field: str) -> list[Path]:
    """A folder stands for every file below it, hidden ones left out; a pattern for what it matches."""
    found: dict[Path, None] = {}
    for text in asked:
        here = _meant(text)
        if not here:
            raise ValueError(f"{field}: {text!r} is not a file, folder or pattern that matches one; write a text file")
        found.update(dict.fromkeys(here))
        if len(found) > MOST_FILES:
            raise ValueError(f"{field}: {text!r} is more than {MOST_FILES:,} files; write fewer, larger ones")
    return list(found)


def _meant(text: str) -> list[Path]:
    path = Path(text)
    try:
        if path.is_file():
            return [path]
        if path.is_dir():
            below = (p for p in path.rglob("*") if p.is_file())
            return sorted(p for p in below if not any(part.startswith(".") for part in p.relative_to(path).parts))
        return sorted(Path(name) for name in glob.glob(text, recursive=True) if Path(name).is_file())
    except (OSError, ValueError):
        return []
