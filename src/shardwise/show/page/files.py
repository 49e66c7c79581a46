"""What the browser is given: the page's own files, its modules as one script, the lessons."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from shardwise.answers.terms import all_terms
from shardwise.show.page.bundle import bundled
from shardwise.show.page.questions import STATIC
from shardwise.show.page.views import table

LESSONS = Path(__file__).parent / "lessons"
PARTS = ("index.html", "style.css", "views.css", "icon.svg", "early.js")
"""files that are given as they are; the other scripts are modules of `page_script`"""


@cache
def page_script() -> str:
    """All modules, and the table of forms, in one answer: modules that name each other would be asked for one after the
    other."""
    return f"window.shardwiseTable = {msgspec.json.encode(table()).decode()};\n{bundled(STATIC, 'main.js')}"


@cache
def terms_json() -> str:
    """The glossary as a browser looks words up: each spelling in lower case, and its meaning."""
    return msgspec.json.encode({name.lower(): term.meaning for term in all_terms() for name in term.names}).decode()


@cache
def lessons_json() -> str:
    """Lessons in their order, each a file."""
    found: list[dict[str, Any]] = [
        {"name": path.stem} | tomllib.loads(path.read_text(encoding="utf-8")) for path in LESSONS.glob("*.toml")
    ]
    return msgspec.json.encode({"lessons": sorted(found, key=lambda lesson: lesson["order"])}).decode()
