"""Every decision says question, decision, why and cost, in at most 120 words, and is in the list."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
LEADS = ["Question", "Decision", "Why", "Cost"]
MOST_WORDS = 120


def faults(text: str) -> list[str]:
    """What is wrong with the text of one decision."""
    title, _, body = text.partition("\n")
    found = [] if re.match(r"# \d+\. \S", title) else ["the first line is not '# NUMBER. TITLE'"]
    leads = re.findall(r"^\*\*(\w+)\.\*\*", body, re.MULTILINE)
    found += [] if leads == LEADS else [f"its parts are {leads}, not {LEADS}"]
    words = len(body.split())
    return found + ([f"{words} words"] if words > MOST_WORDS else [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_four_parts_and_few_words(page):
    text = page.read_text(encoding="utf-8")
    assert faults(text) == []
    assert text.startswith(f"# {int(page.name[:4])}. ")


def test_the_check_finds_what_is_wrong():
    good = PAGES[0].read_text(encoding="utf-8")
    assert faults(good + "and " * MOST_WORDS) != []
    assert faults(good.replace("**Cost.**", "It costs")) != []
    assert faults(good.replace("# ", "", 1)) != []


def test_the_list_of_decisions_is_complete_and_has_their_titles():
    listed = re.findall(r"^\| \[\d+\]\((\S+)\) \| (.+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    titles = [page.read_text(encoding="utf-8").partition("\n")[0].split(". ", 1)[1] for page in PAGES]
    assert listed == [(page.name, title) for page, title in zip(PAGES, titles, strict=True)]
