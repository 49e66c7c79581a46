"""`catalog terms`: the glossary: every word and code that the tool prints, and those of the field a reader meets."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from shardwise import catalog
from shardwise.answers.answer import Answer, FactList, Part, shown, table
from shardwise.registry import closest

PLACES = (Path(catalog.__file__).with_name("glossary.md"), Path(catalog.__file__).parents[3] / "docs" / "glossary.md")
"""of an installed package, of a checkout"""
_ROW = re.compile(r"^\| (?P<words>.+?) \| (?P<meaning>.+) \|$")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


class Term(Struct, frozen=True, kw_only=True):
    words: Annotated[str, shown("word")]
    meaning: Annotated[str, shown("meaning")]
    section: str

    @property
    def names(self) -> list[str]:
        """Each spelling: codes, and words between commas."""
        plain = re.sub(r"\([^)]*\)", "", self.words.replace("`", ""))
        return [word.strip() for word in plain.split(",") if word.strip()]


class TermsAnswer(Answer, frozen=True, kw_only=True):
    terms: Sequence[Term]

    def parts(self) -> Iterator[Part]:
        if len(self.terms) == 1:
            (term,) = self.terms
            yield FactList(term.words, [("means", term.meaning), ("of", term.section)])
            return
        for section in dict.fromkeys(term.section for term in self.terms):
            rows = [term for term in self.terms if term.section == section]
            yield table(section, rows, words=2, breaks=1)


ANSWERS = (TermsAnswer,)


def all_terms() -> list[Term]:
    page = next((place for place in PLACES if place.is_file()), None)
    if page is None:
        raise ValueError(f"terms: the glossary is missing at {PLACES[0]}; install shardwise again")
    section, found = "", []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        row = _ROW.match(line)
        if row and not row["words"].startswith(("---", "word", "code", "head")):
            words, meaning = (_LINK.sub(r"\1", row[name]).replace("`", "") for name in ("words", "meaning"))
            found.append(Term(words=words, meaning=meaning, section=section))
    return found


def terms_answer(word: str | None) -> TermsAnswer:
    """All, or those that a word names."""
    terms = all_terms()
    if word is None:
        return TermsAnswer(terms=terms)
    wanted = word.strip().lower()
    named = [term for term in terms if wanted in (name.lower() for name in term.names)]
    if not named:
        raise ValueError(f"term: {word[:40]!r} is not in the glossary; {closest(wanted, _names(terms))}")
    return TermsAnswer(terms=named)


def _names(terms: Sequence[Term]) -> list[str]:
    return sorted({name.lower() for term in terms for name in term.names})
