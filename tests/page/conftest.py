"""One server for all tests of a process: its warm processes take a while to start."""

import os
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(scope="session", autouse=True)
def own_source():
    """Processes that are started run this source tree."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), *filter(None, [before])])
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
