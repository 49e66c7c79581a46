"""What the words of a text say of a run besides the name of its program (catalog/words.toml).

A word may be denied ("without torch.compile"), which says something too. Two words about the same that say different
things cancel each other out.
"""

import re
import tomllib
from collections.abc import Collection
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from shardwise import catalog
from shardwise.spec.software.load import stack_of
from shardwise.spec.software.origin import Origin
from shardwise.spec.software.stack import PARTS, Stack

TABLE = Path(catalog.__file__).parent / "words.toml"
DENIED = r"(?P<no>\b(?:no|not|non|without|w/o)[\s-]+)?"
ANY = "any other"
OTHERS = r"(?:[\w-]+(?:,\s*|/|\s+and\s+|\s*\+\s*))*"
"""what may be listed before the thing itself: fused norm, rotation and SwiGLU"""
TEXTS = 4096
"""texts remembered"""


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a word changes: as the file of another stack states it, or settings."""

    takes: str = ""
    """a stack's name; or `compiled` or `uncompiled`, which a stack names one for"""
    settings: dict[str, Any] = {}
    """a value, or one for each that the stack may have and one for any other, without which that stays as it is"""


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    """what it is said of; the words of a text that say different things of the same are not believed"""
    words: tuple[str, ...]
    source: str
    says: Fact = Fact()
    denied: Fact = Fact()
    """what is said where one of the words is denied"""
    of: Literal["eager", "every"] = "eager"
    """the programs it is a fact of: those that run PyTorch's operations one by one, or all"""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    date: str
    word: tuple[Word, ...]


class Said(NamedTuple):
    text: str
    """as it stands there"""
    word: Word
    fact: Fact


def with_words(stack: Stack, text: str, about: Collection[str] = ()) -> tuple[Stack, tuple[str, ...]]:
    """The stack as the words of a `software` text have it -> (it, the words that changed it). `about`: only those said
    of these; none: all."""
    believed: dict[str, None] = {}
    for said in said_in(text):
        if about and said.word.about not in about:
            continue
        changed = _with_fact(stack, said)
        if any(getattr(changed, part) != getattr(stack, part) for part in PARTS):
            believed[said.text] = None
            stack = changed
    return stack, tuple(believed)


@lru_cache(TEXTS)
def said_in(text: str) -> tuple[Said, ...]:
    """In the order of the table: later words have the last say."""
    found: dict[str, list[Said]] = {}
    lower = text.lower()
    for word in _words():
        for match in _pattern(word.words).finditer(lower):
            fact = word.denied if match["no"] else word.says
            found.setdefault(word.about, []).append(Said(match[0], word, fact))
    return tuple(each[0] for each in found.values() if all(other.fact == each[0].fact for other in each))


def _with_fact(stack: Stack, said: Said) -> Stack:
    if said.fact.takes in ("compiled", "uncompiled"):
        other = getattr(stack, said.fact.takes)
        return stack.taking_over(stack_of(other)) if other else stack
    if said.word.of == "eager" and not stack.compiled:
        return stack
    if said.fact.takes:
        stack = stack.taking_over(stack_of(said.fact.takes))
    if not said.fact.settings:
        return stack
    settings = {
        name: value.get(was := stack.setting(name), value.get(ANY, was)) if isinstance(value, dict) else value
        for name, value in said.fact.settings.items()
    }
    return stack.told(settings, Origin("read", f"{said.text!r} in the text; {said.word.source}", ""))


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Whole words, the longest first, with what denies them; a space stands for a hyphen or nothing too."""
    either = (re.escape(word).replace(r"\ ", r"[\s-]?") for word in sorted(words, key=len, reverse=True))
    listed = (word.replace(r"fused[\s-]?", rf"fused[\s-]?{OTHERS}") for word in either)
    return re.compile(rf"{DENIED}(?<![\w.])(?:{'|'.join(listed)})(?!\w)")


@cache
def _words() -> tuple[Word, ...]:
    try:
        return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), _Table).word
    except msgspec.ValidationError as error:
        raise ValueError(f"words.toml: {error}") from None
