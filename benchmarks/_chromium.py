"""A real browser for the page: Chromium by playwright, where both are installed, and the server it looks at."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DRAWN = "#results[data-drawn]"
SIZES = {"narrow": (360, 780), "usual": (1280, 860), "large": (3840, 2160)}


def chromium_path() -> str | None:
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


def missing() -> str:
    """Why no browser can be had; nothing where one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: pip install 'shardwise[browser]'"
    return "" if chromium_path() else "there is no chromium: apt-get install chromium"


@contextmanager
def served(*words: str) -> Iterator[str]:
    """The address of a server of this source tree."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "shardwise", "serve", "--port", "0", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                break
        try:
            yield json.loads(text)["address"]
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        found = started.chromium.launch(executable_path=chromium_path(), args=flags)
        try:
            yield found
        finally:
            found.close()


def opened(page: Any, address: str, link: str, *, seconds: float = 60) -> None:
    """The view of a link, drawn."""
    page.goto(address + link)
    page.wait_for_selector(f"{DRAWN}, .failed", timeout=seconds * 1000)


def axe_script() -> str | None:
    """axe-core, where a package brings it; it is run in tests only."""
    try:
        import axe_playwright_python
    except ImportError:
        return None
    found = sorted(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js"))
    return found[0].read_text(encoding="utf-8") if found else None


def serious(page: Any, script: str) -> list[str]:
    """What axe-core finds that is serious or worse: rule and place."""
    page.evaluate(script)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['target']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
