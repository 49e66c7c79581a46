"""The view Run beside a run that goes on: what it shows follows the records, and equals what `watch` says."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from _chromium import ROOT, missing, opened, served
from shardwise.measured.record import Recorder
from shardwise.show.cli import main

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.xdist_group("page"),
]
LATER = "(before) => Number(document.querySelector('.headline')?.dataset.step) > before"


def test_a_run_is_followed_while_it_goes_on(page, address, watched, capsys):
    opened(page, address, "#/run")
    page.wait_for_selector("text=The run is not there yet")
    over = threading.Event()
    training = threading.Thread(target=_train, args=(watched, over))
    training.start()
    try:
        page.wait_for_selector(".headline[data-step]")
        seen = int(page.locator(".headline").get_attribute("data-step"))
        page.wait_for_function(LATER, arg=seen)
    finally:
        over.set()
        training.join(30)
    page.wait_for_selector("text=finished")
    main(["watch", str(watched), "--once", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert int(page.locator(".headline").get_attribute("data-step")) == found["status"]["last_step"]
    assert len(found["course"]["step"]) == found["status"]["steps"]
    assert found["course"]["loss"][-1] == pytest.approx(1 / found["status"]["last_step"])
    for drawn in ("Time of each step", "Loss of each step"):
        assert page.get_by_role("img", name=drawn).count() == 1
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def _train(folder, over):
    """A loop of no model: its steps take time and have a loss."""
    recorder = Recorder(folder, program="a loop")
    recorder.begin()
    step = 0
    while not over.is_set() or step < 4:
        step += 1
        time.sleep(0.05)
        recorder.end_step(loss=1 / step)
    recorder.end()


@pytest.mark.slow
def test_a_real_run_of_two_ranks_is_followed(chromium, tmp_path):
    """`shardwise run` on two processes of this machine, seen in the page while it trains."""
    pytest.importorskip("torch", reason="a run needs torch: pip install 'shardwise[run]'")
    folder = tmp_path / "records"
    folder.mkdir()
    words = ["run", str(ROOT / "docs" / "tiny-llama.json"), "--on", "2xh100", "--dp", "2", "--seq", "64"]
    words += ["--global-batch", "8", "--steps", "4000", "--device", "cpu", "--records", str(folder)]
    with subprocess.Popen([sys.executable, "-m", "shardwise", *words], stderr=subprocess.DEVNULL) as run:
        try:
            with served("--watch", str(folder)) as address:
                page = chromium.new_page()
                page.set_default_timeout(120_000)
                opened(page, address, "#/run")
                page.wait_for_selector(".headline[data-step]")
                seen = int(page.locator(".headline").get_attribute("data-step"))
                page.wait_for_function(LATER, arg=seen)
                assert "goes on" in page.inner_text(".headline")
                assert page.get_by_text("rank 1", exact=True).count() == 1
                page.close()
        finally:
            run.terminate()
            run.wait(60)
    assert len(list(Path(folder).glob("*.jsonl"))) == 2
