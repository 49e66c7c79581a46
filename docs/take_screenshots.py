"""The pictures of docs/page.md, by Chromium: `python docs/take_screenshots.py [FOLDER [VIEW...]]`, `make screenshots`.

With a folder, every view (or those named) at three widths, in light and in dark colours, for looking through.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _chromium import SIZES, browser, missing, opened, served  # noqa: E402
from shardwise.measured.record import Recorder  # noqa: E402

CASE = "model=llama-3-70b&on=dgx-h100:64&tp=8&pp=4"
LINKS = {
    "plan": "#/plan", "policy": f"#/policy?{CASE}", "timeline": f"#/timeline?{CASE}&global-batch=64",
    "fabric": f"#/fabric?{CASE}",
    "operate": "#/operate?tokens=15T", "sync": "#/sync?model=gpt2", "run": "#/run", "learn": "#/learn?lesson=pipeline",
    "posttrain": "#/posttrain?model=qwen3-32b&on=dgx-h100:64&lengths=math",
    "learn-ko": "#/learn?lesson=pipeline&lang=ko", "problems": "#/learn?part=cards",
}  # fmt: skip
SHOWN = {"plan": "light", "policy": "dark", "timeline": "light", "learn": "light"}
"""those in the documentation, and their colours"""
SETTLED_MS = 500
STEPS = 40


def run_recorded(folder: Path) -> None:
    """What a loop of no model leaves, for the view Run."""
    recorder = Recorder(folder, program="a loop")
    recorder.begin()
    for step in range(1, STEPS + 1):
        time.sleep(0.01 + 0.02 * (step % 13 == 0))
        recorder.end_step(loss=2 + 8 / step)
    recorder.end()


def take(
    chromium: Any, address: str, view: str, size: tuple[int, int], colours: str, path: Path, *, whole: bool
) -> None:
    page = chromium.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=colours)
    opened(page, address, LINKS[view], seconds=120)
    page.wait_for_load_state("networkidle")  # what is asked when the view is drawn is there too
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=path, full_page=whole)
    page.close()
    print(path, flush=True)


def main() -> int:
    why = missing()
    if why:
        print(f"no screenshots: {why}")
        return 1
    with ExitStack() as stack:
        records = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tiny-gpt"
        run_recorded(records)
        address, chromium = stack.enter_context(served("--watch", str(records))), stack.enter_context(browser())
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1])
            folder.mkdir(parents=True, exist_ok=True)
            for view in sys.argv[2:] or LINKS:
                for name, size in SIZES.items():
                    for colours in ("light", "dark"):
                        path = folder / f"{view}-{name}-{colours}.png"
                        take(chromium, address, view, size, colours, path, whole=True)
            return 0
        folder = ROOT / "docs" / "page"
        folder.mkdir(exist_ok=True)
        for view, colours in SHOWN.items():
            take(chromium, address, view, SIZES["usual"], colours, folder / f"{view}.png", whole=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
