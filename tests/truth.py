"""Measured truth lies beside the repository when it is there at all."""

from pathlib import Path

import pytest

TRUTH = Path(__file__).resolve().parents[1].parent / "shared" / "truth"


def truth(name: str) -> Path:
    """The path of a truth file; the test is skipped, with the reason, where it is absent."""
    path = TRUTH / name
    if not path.is_file():
        pytest.skip(f"no measured truth {name} beside the repository")
    return path
