"""Conditions of a shell script: true, false, or unknown where only a run decides."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from shardwise.programs.formats._shell_words import NAME, Environment, Expander, is_open

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip
SIGNS = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}
_PLAIN_PATTERN = re.compile(r"[\w ^$.|+*?(),:/=\[\]-]{1,100}")
"""where extended regular expressions and Python's agree"""
_COUNTS = re.compile(
    rf"\s*({NAME})\s*=\s*([^;]+);\s*\$?\1\s*(<=?)\s*([^;]+);\s*(?:\+\+\1|\1\s*\+\+|\1\s*\+=\s*(\d+))\s*", re.ASCII
)
MOST_COUNTED = 20_000
OF_FILES = re.compile(r"-[a-zA-Z]")
ENDS = ("]", "]]")


def test_of(words: Sequence[str], environment: Environment, *, arithmetic: bool) -> bool | None:
    """Of raw words: [ ... ], [[ ... ]] or, with `arithmetic`, the terms of (( ... ))."""
    reader = _Test([word for word in words if word and word not in ENDS], environment, arithmetic)
    return reader.any_of()


class _Test:
    def __init__(self, words: list[str], environment: Environment, arithmetic: bool) -> None:
        self.words, self.environment, self.arithmetic, self.at = words, environment, arithmetic, 0

    def _peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def any_of(self) -> bool | None:
        outcomes = [self.all_of()]
        while self._peek() in ("||", "-o"):
            self.at += 1
            outcomes.append(self.all_of())
        return True if True in outcomes else None if None in outcomes else False

    def all_of(self) -> bool | None:
        outcomes = [self.one()]
        while self._peek() in ("&&", "-a"):
            self.at += 1
            outcomes.append(self.one())
        return False if False in outcomes else None if None in outcomes else True

    def one(self) -> bool | None:
        if self._peek() == "!":
            self.at += 1
            outcome = self.one()
            return None if outcome is None else not outcome
        if self._peek() == "(":
            self.at += 1
            outcome = self.any_of()
            self.at += self._peek() == ")"
            return outcome
        start = self.at
        while self._peek() and self._peek() not in ("&&", "||", "-a", "-o", ")"):
            self.at += 1
        return self._term(self.words[start : self.at])

    def _term(self, words: list[str]) -> bool | None:
        if len(words) == 3:
            return self._compared(*words)
        if len(words) == 2:
            return self._unary(*words)
        if len(words) == 1:
            value = self._number(words[0]) if self.arithmetic else self._text(words[0])
            return None if value is None else bool(value)
        return False if not words else None

    def _text(self, raw: str) -> str | None:
        text = " ".join(Expander(raw, self.environment).word(whole=True))
        return None if is_open(text) else text

    def _number(self, raw: str) -> int | None:
        text = "".join(Expander(f"$(({raw}))", self.environment).words()) if self.arithmetic else self._text(raw)
        if text == "":
            return 0
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,15}", text) else None

    def _unary(self, operator: str, raw: str) -> bool | None:
        if operator in ("-n", "-z"):
            text = self._text(raw)
            return None if text is None else bool(text) is (operator == "-n")
        if operator == "-v" and re.fullmatch(NAME, raw):
            if raw not in self.environment.variables:
                self.environment.unset.add(raw)
            return raw in self.environment.variables
        return None

    def _compared(self, left: str, operator: str, right: str) -> bool | None:
        operator = SIGNS.get(operator, operator) if self.arithmetic else operator
        if operator in COMPARISONS:
            numbers = self._number(left), self._number(right)
            return None if numbers[0] is None or numbers[1] is None else COMPARISONS[operator](numbers[0], numbers[1])
        texts = self._text(left), self._text(right)
        if texts[0] is None or texts[1] is None:
            return None
        if operator == "=~":
            return _matches(texts[0], texts[1], quoted=right[:1] in "'\"")
        if operator in ("=", "=="):
            return fnmatchcase(texts[0], texts[1])
        if operator == "!=":
            return not fnmatchcase(texts[0], texts[1])
        return None


def _matches(text: str, pattern: str, *, quoted: bool) -> bool | None:
    """[[ TEXT =~ PATTERN ]]; in quotes the pattern is plain text."""
    if quoted:
        return pattern in text
    if not _PLAIN_PATTERN.fullmatch(pattern):
        return None
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return None


def counted(text: str, environment: Environment) -> list[str] | None:
    """Values of the variable of for ((i = A; i < B; i++)); None where only a run shows them."""
    match = _COUNTS.fullmatch(text)
    if match is None:
        return None
    first, last = ("".join(Expander(f"$(({match[at]}))", environment).words()) for at in (2, 4))
    if not re.fullmatch(r"-?\d{1,6}", first) or not re.fullmatch(r"-?\d{1,6}", last):
        return None
    values = range(int(first), int(last) + (match[3] == "<="), max(int(match[5] or 1), 1))
    return list(map(str, values[:MOST_COUNTED]))
