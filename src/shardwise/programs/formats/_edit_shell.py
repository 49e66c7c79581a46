"""Options of a launch script replaced, added and taken out in its text: at the option, or where its variable is set.

Which of several places is the right one is not decided here: each is offered, and whoever asks reads the script again.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TOKEN = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|(?:\$\{[^}\n]*\}|[^\s\\;|&()\"'])+")
_NAMED = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_DEFAULTED = re.compile(r"\$\{(\w+):?-(.*)\}")
_COMMENT = re.compile(r"(?<!\S)#[^\n]*")
_BETWEEN = re.compile(r"(?:[ \t]|\\\n)+|=")
DEEPEST = 8
"""variables that stand for one another"""
Texts = Mapping[Path, str]


class NotHereError(ValueError):
    """The value is set where it must not be changed."""


@dataclass(frozen=True)
class TextPlace:
    path: Path
    start: int
    end: int

    def filled(self, texts: Texts, word: str) -> dict[Path, str]:
        text = texts[self.path]
        return {**texts, self.path: text[: self.start] + word + text[self.end :]}


def replaced(texts: Texts, name: str, value: Any) -> Iterator[dict[Path, str]]:
    """Ways to state another value; none where the option is not in the scripts. None takes it out."""
    for script, text in texts.items():
        for option in reversed(list(_options(_bare(text), name))):
            values = list(_values(text, option.end(), switch=value is True))
            whole = TextPlace(script, option.start(), values[-1].end() if values else option.end())
            if value is None or value is False:
                taken_out = "=" in option[0] and values
                yield (
                    TextPlace(script, values[0].start(), whole.end).filled(texts, "null")
                    if taken_out
                    else _without(texts, whole)
                )
            elif len(values) == 1 and not isinstance(value, list | tuple):
                token = TextPlace(script, values[0].start(), values[0].end())
                yield from (place.filled(texts, str(value)) for place in _origins(texts, token, name))
                yield token.filled(texts, _word(value))
            elif values:
                yield TextPlace(script, values[0].start(), whole.end).filled(texts, _word(value))


def added(texts: Texts, name: str, value: Any, beside: list[str]) -> Iterator[dict[Path, str]]:
    """The option behind one that is there, on a line of its own where that has one."""
    for script, text in texts.items():
        bare = _bare(text)
        for option in (match for other in beside for match in reversed(list(_options(bare, other)))):
            values = list(_values(text, option.end(), switch=False))
            end = values[-1].end() if values else option.end()
            before = text[text.rfind("\n", 0, option.start()) + 1 : option.start()]
            behind = re.match(r"[ \t]*(\\?)(?=\n)", text[end:])
            apart = " "
            if behind is not None and not before.strip():
                apart = (" \\" if behind[1] else "") + f"\n{before}"
            yield TextPlace(script, end, end).filled(texts, apart + _stated(name, value, option[0]))


def _stated(name: str, value: Any, like: str) -> str:
    """An option in the form of another."""
    if "=" in like:
        return f"++{name}={_word(value)}"  # hydra: whether its configuration lists the name or not
    spelt = name if "_" in like else name.replace("_", "-")
    return f"--{spelt}" if value is True else f"--{spelt} {_word(value)}"


def _options(text: str, name: str) -> Iterator[re.Match[str]]:
    spelt = re.escape(name).replace("_", "[-_]")
    return re.finditer(rf"(?<![\w-])--{spelt}(?![\w.-])|(?<![\w.-])\+{{0,2}}{re.escape(name)}=", text)


def _bare(text: str) -> str:
    """The script with blanks for its comments, so that places stay the same."""
    return _COMMENT.sub(lambda match: " " * len(match[0]), text)


def _values(text: str, at: int, *, switch: bool) -> Iterator[re.Match[str]]:
    """The words behind an option; of a switch none."""
    equals = text[at - 1] == "="
    while not switch:
        between = _BETWEEN.match(text, at)
        token = _TOKEN.match(text, between.end() if between and not equals else at)
        if token is None or (between is None and not equals) or token[0].lstrip("\"'").startswith(("--", "+")):
            return
        if not equals and re.match(r"[\w.]+=", token[0]):
            return
        yield token
        at = token.end()
        if equals or text[token.end() : token.end() + 1] not in (" ", "\t"):
            return
        if not re.match(r"[ \t]+[A-Za-z]\w*(?=[\s)\"'])", text[at:]):
            return


def _origins(texts: Texts, token: TextPlace, name: str, depth: int = 0) -> Iterator[TextPlace]:
    """Where the text of a value stands: here, as a default, or where its variable is set."""
    text = texts[token.path][token.start : token.end]
    quotes = int(text[:1] in ("'", '"') and len(text) > 1)
    inner = text[quotes : len(text) - quotes]
    if "$" not in inner and "`" not in inner:
        yield TextPlace(token.path, token.start + quotes, token.end - quotes)
        return
    named, default = _NAMED.fullmatch(inner), _DEFAULTED.fullmatch(inner)
    if depth >= DEEPEST or (named is None and default is None):
        raise NotHereError(f"{name}: computed by the script; change it there by hand")
    variable = (named[1] or named[2]) if named else default[1] if default else ""
    places = [place for place in _assignments(texts, variable) if place != token]
    for place in reversed(places):
        yield from _origins(texts, place, name, depth + 1)
    if not places and default is not None:
        end = token.end - quotes - 1
        yield from _origins(texts, TextPlace(token.path, end - len(default[2]), end), name, depth + 1)
    elif not places:
        raise NotHereError(
            f"{name}: from ${variable}, which the environment or a file outside sets; change it there, or write a value"
        )


def _assignments(texts: Texts, variable: str) -> list[TextPlace]:
    found = list[TextPlace]()
    for path, text in texts.items():
        for match in re.finditer(rf"(?:^|(?<=[\s;])){variable}=", _bare(text)):
            token = _TOKEN.match(text, match.end())
            # NAME=${NAME:-default}: the default is what is set
            own = token and (default := _DEFAULTED.fullmatch(token[0].strip("\"'"))) and default[1] == variable
            if token and own and default:
                end = token.start() + token[0].rindex("}")
                found.append(TextPlace(path, end - len(default[2]), end))
            elif token:
                found.append(TextPlace(path, token.start(), token.end()))
    return found


def _without(texts: Texts, option: TextPlace) -> dict[Path, str]:
    """The option taken out, with its line where that has nothing else."""
    text = texts[option.path]
    start = text.rfind("\n", 0, option.start) + 1
    behind = re.match(r"[ \t]*(\\?)\n", text[option.end :])
    if text[start : option.start].strip() or behind is None:
        blank = len(text[: option.start]) - len(text[: option.start].rstrip(" \t"))
        return TextPlace(option.path, option.start - max(blank, 0), option.end).filled(texts, "")
    head, tail = text[:start], text[option.end + behind.end() :]
    if not behind[1] and head.endswith("\\\n"):
        head = head.removesuffix("\\\n").rstrip(" \t") + "\n"  # the last line of a command
    return {**texts, option.path: head + tail}


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(shlex.quote(str(item)) for item in value)
    return shlex.quote(str(value))
