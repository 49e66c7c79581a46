"""Takes the pictures of docs/page.md with Chromium: `python docs/take_screenshots.py [FOLDER]`, `make screenshots`.

With a folder, every view at three widths, in light and in dark colours, for looking through.
"""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _chromium import SIZES, browser, missing, opened, served  # noqa: E402

CASE = "model=llama-3-70b&on=dgx-h100:64&tp=8&pp=4"
LINKS = {
    "plan": "#/plan", "policy": f"#/policy?{CASE}", "timeline": f"#/timeline?{CASE}&global-batch=64",
    "fabric": f"#/fabric?{CASE}",
    "operate": "#/operate?tokens=15T", "sync": "#/sync?model=gpt2", "learn": "#/learn?lesson=pipeline",
}  # fmt: skip
SHOWN = {"plan": "light", "policy": "dark", "timeline": "light", "learn": "light"}
"""those in the documentation, and their colours"""
SETTLED_MS = 1500


def take(
    chromium: Any, address: str, view: str, size: tuple[int, int], colours: str, path: Path, *, whole: bool
) -> None:
    page = chromium.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=colours)
    opened(page, address, LINKS[view])
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=path, full_page=whole)
    page.close()
    print(path)


def main() -> int:
    why = missing()
    if why:
        print(f"no screenshots: {why}")
        return 1
    with served() as address, browser() as chromium:
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1])
            folder.mkdir(parents=True, exist_ok=True)
            for view in LINKS:
                for name, size in SIZES.items():
                    for colours in ("light", "dark"):
                        take(
                            chromium, address, view, size, colours, folder / f"{view}-{name}-{colours}.png", whole=True
                        )
            return 0
        folder = ROOT / "docs" / "page"
        folder.mkdir(exist_ok=True)
        for view, colours in SHOWN.items():
            take(chromium, address, view, SIZES["usual"], colours, folder / f"{view}.png", whole=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
