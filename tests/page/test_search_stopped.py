"""Stop, clicked while a search streams what it has found: the table stays, the work ends."""

import os
import socket
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from _chromium import missing

pytest.importorskip("uvicorn", reason="the page needs uvicorn: pip install 'shardwise[page]'")
import uvicorn

from shardwise.show.cli._page_server import names_of
from shardwise.show.page.app import page_app

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.xdist_group("page"),
]
WORKER = Path(__file__).with_name("endless_worker.py")


@contextmanager
def hosted(command):
    """The address of a server in this process, whose questions go to that command."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # whoever comes before the server has started waits in line
    port = listening.getsockname()[1]
    app = page_app(command, names_of("127.0.0.1", port), seconds=60)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1))
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        serving.join(20)
        listening.close()


def ended(pid, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_stop_ends_a_streamed_search_and_keeps_what_it_found(chromium, tmp_path):
    note = tmp_path / "pid"
    with hosted([sys.executable, str(WORKER), str(note)]) as address:
        page = chromium.new_page()
        page.set_default_timeout(30_000)
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}#/plan?model=llama-3-8b&on=8xh100")
        page.wait_for_selector(".so-far")
        working = int(note.read_text())
        os.kill(working, 0)
        page.get_by_role("button", name="Stop").click()
        page.wait_for_selector("text=stopped: others were not looked at")
        assert ended(working), "the process that searched is gone"
        assert "tp4" in page.inner_text(".so-far"), "what was found is still there"
        assert page.get_by_role("button", name="Stop").count() == 0
        page.close()
    assert complaints == []
