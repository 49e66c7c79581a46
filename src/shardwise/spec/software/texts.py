"""Which stack a `software` text means: by the name of a program, else by a library or a platform it names, and what its
other words say."""

from functools import cache, lru_cache
from typing import NamedTuple

import msgspec

from shardwise import catalog
from shardwise.spec.software.load import names_of, stack_names, stack_of
from shardwise.spec.software.stack import Stack
from shardwise.spec.software.words import with_words

UNNAMED = "generic"
"""what a `software` text that names no known program is taken as"""
UNSTATED = "(not stated)"
GAP = "…"
"""in a piece: something may stand between"""
TEXTS = 1024
"""`software` texts remembered: a table has thousands of rows and few programs"""


class Match(NamedTuple):
    """The stack that is meant, and what said so."""

    stack: Stack
    piece: str
    """of a `software` text: the part that names the stack, empty where none does; else the stack's own name"""
    text: str = ""
    """the whole `software` text; empty where the stack itself was named"""
    said: tuple[str, ...] = ()
    """words of the text that changed the stack's settings"""
    platform: str = ""
    """the word by which the stack was taken where no part names one"""

    @property
    def known(self) -> bool:
        return bool(self.piece)

    @property
    def note(self) -> str:
        """What has to be said where nothing is known of the program, or no more than what it is built on."""
        if self.known and not (self.text and self.stack.library):
            return ""
        return f"software {self.text!r} is {'' if self.known else 'not known; '}{self.taken}"

    @property
    def taken(self) -> str:
        words = ", ".join(repr(word) for word in dict.fromkeys((self.piece, self.platform, *self.said)) if word)
        return f"taken as {self.stack.name}" + (f" by {words}" if words else "")

    @property
    def rivals(self) -> tuple[Stack, ...]:
        """Other stacks that pass as the same program, where its name was given and no release."""
        passing = _passing_as(self.piece)
        if self.stack.name not in passing:
            return ()
        return tuple(stack_of(name) for name in passing if name != self.stack.name)


@cache
def _passing_as(program: str) -> tuple[str, ...]:
    """Names of the stacks that stand for a program."""
    near = (name for each in catalog.mentioning("programs", program) for name in names_of(each))
    return tuple(name for name in near if program in stack_of(name).programs)


@lru_cache(TEXTS)
def match_of(software: str, *, sharded: bool = False) -> Match:
    """The longest piece wins, of a program before one of a library before the word of a platform; UNNAMED where nothing
    matches. `sharded`: a run that cuts its model or its state, which no platform does by itself."""
    text = software.lower()
    stacks = [stack_of(name) for name in stack_names()]
    found = [
        (not stack.library, len(piece), piece, stack)
        for stack in stacks
        for piece in stack.matches
        if _stands_in(text, piece)
    ]
    if found:
        *_, piece, stack = max(found, key=lambda each: each[:2])
        return Match(*_read(stack, piece, software))
    loops = ((stack, word) for stack in stacks for word in stack.platforms if word in text and not sharded)
    stack, platform = next(loops, (stack_of(UNNAMED), ""))
    return Match(*_read(stack, "", software), platform)


def _stands_in(text: str, piece: str) -> bool:
    for part in piece.split(GAP):
        _, found, text = text.partition(part)
        if not found:
            return False
    return True


def _read(stack: Stack, piece: str, software: str) -> tuple[Stack, str, str, tuple[str, ...]]:
    stack, said = with_words(stack, software)
    return stack, piece, software, said


def stack_for(software: str, *, sharded: bool = False) -> Stack:
    """The stack a `software` text names, which remembers the text; UNNAMED when nothing matches."""
    stack, text = match_of(software, sharded=sharded).stack, software.strip() or UNSTATED
    provenance = msgspec.structs.replace(stack.provenance, called=text, sharded=sharded)
    return msgspec.structs.replace(stack, provenance=provenance)


def named(stack: Stack) -> Match:
    """How the stack came to be meant: by a text, or by its own name."""
    if not stack.called:
        return Match(stack, stack.name)
    return match_of(stack.called, sharded=stack.provenance.sharded)
