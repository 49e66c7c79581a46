"""Words of a shell script: cut from its text and expanded in an environment. Nothing is executed.

A value that only a run of the script would show is *open*. It stays in its place between two NUL characters, as the
text that stands for it, so that whoever needs the value can name what is missing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from shardwise.programs.formats._shell_sums import cut_off, whole_result

MOST_WORDS = 100_000
MOST_EXPANDED = 1 << 22
DEEPEST = 20
ENDS = (";", "&", "|", "\n", "(", ")")
OPEN = "\0"
CLOSES = {"(": ")", "{": "}", "[": "]"}
"""brackets behind a dollar sign"""
LONGEST_OPEN = 200
NAME = r"[A-Za-z_]\w*"
_NAME = re.compile(rf"{NAME}|[0-9@*#?$!-]", re.ASCII)
_BRACED = re.compile(rf"([#!]?)({NAME}|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.DOTALL | re.ASCII)
_SEVERAL = re.compile(r"\$@|\$\{(?:@|\w+\[@\])")
_REPLACED = re.compile(r"(//?)((?:\\.|[^/\\])+)(?:/(.*))?", re.DOTALL)
"""/OLD/NEW or //OLD/NEW"""
_SUM = re.compile(r"[\d\s()+*/%-]{1,200}")
_ARRAY = re.compile(rf"{NAME}\+?=\(", re.ASCII)


def open_word(text: str) -> str:
    """What stands for a value that is not known."""
    return OPEN + " ".join(text.replace(OPEN, "").split())[:LONGEST_OPEN] + OPEN


def is_open(word: str) -> bool:
    return OPEN in word


def open_parts(word: str) -> list[str]:
    """The texts of what is open in a word."""
    return word.split(OPEN)[1::2]


def shown_word(word: str) -> str:
    return word.replace(OPEN, "")


@dataclass
class Environment:
    """Variables of a script, and what reading it has cost so far."""

    variables: dict[str, list[str]] = field(default_factory=dict)
    testing: bool = False
    """inside of a condition, where a variable that is not set counts as empty"""
    unset: set[str] = field(default_factory=set)
    """names that conditions asked for and nobody set"""
    words: int = 0
    expanded: int = 0
    """characters that variables were replaced by"""
    substitute: Callable[[str], str | None] = lambda _command: None
    """the output of a command, where reading it tells"""

    def value(self, name: str) -> list[str]:
        values = self.variables.get(name)
        if values is None:
            return self._unset(name)
        self.expanded += sum(map(len, values)) + len(values)
        if self.expanded > MOST_EXPANDED:
            raise ValueError(f"script: its variables hold more than {MOST_EXPANDED:,} characters; write a shorter one")
        return values

    @property
    def separator(self) -> str:
        """What joins the members of an array in quotes."""
        return self.variables.get("IFS", [" "])[0][:1]

    def _unset(self, name: str) -> list[str]:
        if name in "@*":
            return []
        if self.testing and name not in "?$!-":
            self.unset.add(name)
            return ["0"] if name == "#" else []
        return ["0"] if name == "#" else [open_word(f"${name}")]


def raw_end(text: str, at: int) -> int:
    """Where the word that begins here ends, with its quotes, substitutions and the members of an array."""
    if match := _ARRAY.match(text, at):
        return closing(text, match.end() - 1, "(", ")")
    while at < len(text) and not text[at].isspace():
        character = text[at]
        if character == "\\":
            at += 2
        elif character == OPEN:
            at = _partner(text, at, OPEN) + 1
        elif character in "'`":
            at = _partner(text, at, character) + 1
        elif character == '"':
            at = _quote_end(text, at)
        elif character == "$" and text[at + 1 : at + 2] in CLOSES:
            at = closing(text, at + 1, text[at + 1], CLOSES[text[at + 1]])
        elif character in "<>" and text[at + 1 : at + 2] == "(":
            at = closing(text, at + 1, "(", ")")
        elif character in ENDS or character in "<>":
            break
        else:
            at += 1
    return min(at, len(text))


def _partner(text: str, at: int, mark: str) -> int:
    end = text.find(mark, at + 1)
    if end < 0:
        raise ValueError(f"script: a {mark} is never closed; write the whole script")
    return end


def _quote_end(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        if text[at] == "\\":
            at += 2
        elif text[at] == "$" and text[at + 1 : at + 2] in CLOSES:
            at = closing(text, at + 1, text[at + 1], CLOSES[text[at + 1]])
        else:
            at += 1
    if at >= len(text):
        raise ValueError('script: a " is never closed; write the whole script')
    return at + 1


def closing(text: str, at: int, opens: str, closes: str) -> int:
    """Behind the partner of the bracket at this place; brackets in single quotes and in comments do not count."""
    depth, place = 0, at
    while place < len(text):
        character = text[place]
        comment = character == "#" and opens == "(" and text[place - 1] in " \t\n"
        quoted = character == "'" and depth > 0
        if character == "\\":
            place += 1
        elif (comment or quoted) and (end := text.find("\n" if comment else "'", place + 1)) >= 0:
            place = end
        else:
            depth += (character == opens) - (character == closes)
        place += 1
        if depth == 0:
            return place
    raise ValueError(f"script: a {opens} is never closed; write the whole script")


class Expander:
    """One raw word, or the words of an array's members, as the shell would pass them on."""

    def __init__(self, text: str, environment: Environment, depth: int = 0) -> None:
        if depth > DEEPEST:
            raise ValueError(f"script: variables with defaults nested more than {DEEPEST} deep; write fewer")
        self.text, self.at, self.environment, self.depth = text, 0, environment, depth

    def words(self) -> list[str]:
        """Of text that holds several words."""
        found: list[str] = []
        while self.at < len(self.text):
            if self.text[self.at].isspace() or self.text[self.at] in ENDS:
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                found += self.word()
        return found

    def word(self, *, whole: bool = False) -> list[str]:
        """One word, which unquoted variables may make several; `whole`: kept as one, as assignments do."""
        self.environment.words += 1
        if self.environment.words > MOST_WORDS:
            raise ValueError(f"script: more than {MOST_WORDS:,} words; write a shorter one")
        pieces, current, quoted = list[str](), "", False
        start = self.at
        while self.at < len(self.text):
            character = self.text[self.at]
            if (character.isspace() or character in ENDS) and not (whole and character != "\n"):
                break
            if character == OPEN:
                end = _partner(self.text, self.at, OPEN)
                current, self.at = current + self.text[self.at : end + 1], end + 1
            elif character == "'":
                end = _partner(self.text, self.at, "'")
                current, quoted, self.at = current + self.text[self.at + 1 : end], True, end + 1
            elif character == '"':
                parts = self._quoted()
                current, quoted = current + "".join(parts[:1]), quoted or bool(parts)
                for part in parts[1:]:
                    pieces.append(current)
                    current = part
            elif character == "\\":
                current, self.at = current + self.text[self.at + 1 : self.at + 2], self.at + 2
            elif character in "$`":
                text = " ".join(self._expanded())
                for number, part in enumerate([text] if whole else _split(text)):
                    if number:
                        pieces.append(current)
                        current = ""
                    current += part
            else:
                current, self.at = current + character, self.at + 1
        if self.at == start:
            self.at += 1  # a character that begins nothing
        return [*pieces, current] if current or quoted else pieces

    def _quoted(self) -> list[str]:
        """What stands in double quotes; "${ARRAY[@]}" is several words."""
        words = [""]
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            character = self.text[self.at]
            if character == OPEN:
                end = _partner(self.text, self.at, OPEN)
                words[-1], self.at = words[-1] + self.text[self.at : end + 1], end + 1
            elif character == "\\":
                words[-1] += self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif character in "$`":
                several = _SEVERAL.match(self.text, self.at) is not None
                values = self._expanded()
                if several and not values and words == [""] and self.text[self.at : self.at + 1] == '"':
                    words = []  # an array without members is no word at all
                elif several and values:
                    words[-1] += values[0]
                    words += values[1:]
                else:
                    words[-1] += self.environment.separator.join(values)
            else:
                words[-1] += character
                self.at += 1
        if self.at >= len(self.text):
            raise ValueError('script: a " is never closed; write the whole script')
        self.at += 1
        return words

    def _expanded(self) -> list[str]:
        """The words of a variable, of a sum or of a command whose output is clear from reading it."""
        start = self.at
        if self.text[self.at] == "`":
            self.at = _partner(self.text, self.at, "`") + 1
            return self._output(self.text[start + 1 : self.at - 1], self.text[start : self.at])
        following = self.text[self.at + 1 : self.at + 2]
        if following in CLOSES:
            self.at = closing(self.text, self.at + 1, following, CLOSES[following])
            inside = self.text[start + 2 : self.at - 1]
            if following == "{":
                return self._braced(inside)
            if following == "[":
                return self._sum(inside)
            if inside.startswith("(") and inside.endswith(")"):
                return self._sum(inside[1:-1])
            return self._output(inside, self.text[start : self.at])
        name = _NAME.match(self.text, self.at + 1)
        self.at = name.end() if name else self.at + 1
        return ["$"] if name is None else self.environment.value(name[0])

    def _output(self, command: str, text: str) -> list[str]:
        output = self.environment.substitute(command) if self.depth < DEEPEST else None
        return [open_word(text)] if output is None else [output] if output else []

    def _braced(self, inside: str) -> list[str]:
        match = _BRACED.fullmatch(inside)
        if match is None:
            return [open_word(f"${{{inside}}}")]
        mark, name, index, rest = match.groups()
        values = self.environment.variables.get(name)
        if mark == "#" and not rest:
            return self._length(name, index)
        if mark == "!":
            target = values[0] if values and len(values) == 1 else ""
            known = re.fullmatch(NAME, target) and not index and not rest
            return self.environment.value(target) if known else [open_word(f"${{{inside}}}")]
        if index not in (None, "@", "*"):
            values = self._member(values, index)
        sign = re.match(r":?[-=+?]", rest)
        if sign is not None:
            return self._defaulted(name, values, sign[0], rest[sign.end() :], inside)
        if not rest:
            if index in ("@", "*") and values is None and name not in "@*":
                return []  # arrays do not come from outside
            if index in (None, "@", "*"):
                return self.environment.value(name)
            return values if values is not None else [] if self.environment.testing else [open_word(f"${{{inside}}}")]
        values = self.environment.value(name)
        if name in "@*":
            values = [*self.environment.variables.get("0", [""]), *values]
        return self._edited(values, rest, inside, several=index in ("@", "*") or name in "@*")

    def _length(self, name: str, index: str | None) -> list[str]:
        values = self.environment.value(name)
        return [str(len(values) if index in ("@", "*") else len("".join(values[:1])))]

    def _member(self, values: list[str] | None, index: str) -> list[str] | None:
        """One member of an array, by number or by key."""
        key = "".join(Expander(index, self.environment, self.depth + 1).words())
        keyed = next((value.partition("]=")[2] for value in values or () if value.startswith(f"[{key}]=")), None)
        if keyed is not None:
            return [keyed]
        place = self._sum(index)
        if values is None or len(place) != 1 or not re.fullmatch(r"-?\d{1,6}", place[0]):
            return None
        number = int(place[0])
        return [values[number]] if -len(values) <= number < len(values) else []

    def _defaulted(self, name: str, values: list[str] | None, sign: str, default: str, inside: str) -> list[str]:
        empty = values is None or (sign.startswith(":") and not any(values))
        kind = sign[-1]
        if kind == "+":
            return [] if empty else Expander(default, self.environment, self.depth + 1).words()
        if not empty:
            return values or []
        if kind == "?":
            return [open_word(f"${{{inside}}}")]
        found = Expander(default, self.environment, self.depth + 1).words()
        if kind == "=":
            self.environment.variables[name] = [" ".join(found)]
        return found

    def _edited(self, values: list[str], rest: str, inside: str, *, several: bool) -> list[str]:
        """Ends cut off, parts replaced, letters made small or large; other forms stay open."""
        if any(map(is_open, values)):
            return [open_word(f"${{{inside}}}")]
        text = self._text(re.sub(r"^[#%]{1,2}", "", rest))
        if rest in (",,", "^^"):
            return [value.lower() if rest == ",," else value.upper() for value in values]
        if rest.startswith(("#", "%")):
            long, front = rest[:2] in ("##", "%%"), rest[0] == "#"
            return [cut_off(value, text, front=front, long=long) for value in values]
        if (parts := _REPLACED.fullmatch(rest)) and not set(parts[2]) & set("*?["):
            old, new = self._text(parts[2]), self._text(parts[3] or "")
            if old[:1] in ("#", "%") and parts[1] == "/":
                front, end = old[0] == "#", old[1:]
                fits = str.startswith if front else str.endswith
                return [(new + v.removeprefix(end) if front else v.removesuffix(end) + new) if fits(v, end) else v
                        for v in values]  # fmt: skip
            return [value.replace(old, new, -1 if parts[1] == "//" else 1) if old else value for value in values]
        if (slice_ := self._slice(rest)) is not None:
            return values[slice_] if several else [value[slice_] for value in values]
        return [open_word(f"${{{inside}}}")]

    def _text(self, raw: str) -> str:
        return " ".join(Expander(raw, self.environment, self.depth + 1).word(whole=True)) if raw else ""

    def _slice(self, rest: str) -> slice | None:
        """:FIRST or :FIRST:LENGTH"""
        ends = [self._sum(part) for part in rest[1:].split(":")] if rest.startswith(":") else []
        if len(ends) not in (1, 2) or not all(re.fullmatch(r"-?\d{1,6}", "".join(end)) for end in ends):
            return None
        first, *length = (int(end[0]) for end in ends)
        if length and (length[0] < 0 or first < 0):
            return None
        return slice(first, first + length[0] if length else None)

    def _sum(self, text: str) -> list[str]:
        """Whole numbers joined by + - * / %; anything else stays open."""

        def value(match: re.Match[str]) -> str:
            words = self.environment.value(match[1] or match[2] or match[3])
            return words[0] if words and re.fullmatch(r"-?\d{1,12}", words[0]) else "0" if not words else "?"

        plain = re.sub(r"\$\{([^{}]*[^\w{}][^{}]*)\}", lambda match: " ".join(self._braced(match[1])), text)
        filled = re.sub(r"\$\{(\w+)\}|\$(\w+)|\b([A-Za-z_]\w*)", value, plain)
        result = whole_result(filled) if _SUM.fullmatch(filled) else None
        return [open_word(f"$(({text}))")] if result is None else [str(result)]


def _split(text: str) -> list[str]:
    """At blanks that are not inside of something open."""
    if OPEN not in text:
        return text.split()
    parts = text.split(OPEN)
    kept = "".join(part.replace(" ", "\1") if number % 2 else part for number, part in enumerate(_marked(parts)))
    return [word.replace("\1", " ") for word in kept.split()]


def _marked(parts: list[str]) -> list[str]:
    return [f"{OPEN}{part}{OPEN}" if number % 2 else part for number, part in enumerate(parts)]
