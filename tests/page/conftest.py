"""One server for all tests of a process, one browser for each file of them: they take a while to start."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
sys.path.insert(0, str(ROOT / "benchmarks"))
from _chromium import browser, served  # noqa: E402  lies beside the benchmarks, which use it too


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


@pytest.fixture(scope="session")
def watched(tmp_path_factory):
    """The folder whose records the view Run shows; empty until a test writes some."""
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="session")
def address(watched):
    """Packets are followed without numba, which would compile for half a minute on a machine that never did. Only the
    server is told so: numba reads the environment again and again, and tests of this process compile."""
    with ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NUMBA_DISABLE_JIT", "1")
            found = opened.enter_context(served("--watch", str(watched)))
        yield found


@pytest.fixture(scope="module")
def chromium():
    """Not longer: while it is open, no test of this process can run an event loop of its own."""
    with ExitStack() as opened:
        try:
            found = opened.enter_context(browser())
        except Exception as error:
            pytest.skip(f"no browser: chromium does not start: {str(error).splitlines()[0]}")
        yield found


@pytest.fixture
def page(chromium, address):
    """Whatever a page complains of, or asks of another server, fails the test."""
    made = chromium.new_page(viewport={"width": 1280, "height": 860})
    made.set_default_timeout(60_000)
    complaints, outside = [], []
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on(
        "request",
        lambda request: outside.append(request.url) if not request.url.startswith((address, "blob:")) else None,
    )
    yield made
    made.close()
    assert complaints == []
    assert outside == []
