"""Text that one command of a substitution hands to the next: `echo a/b | cut -d/ -f1`, where the words say all."""

import re
from collections.abc import Sequence

from shardwise.programs.formats._shell_words import is_open, open_word

FILTERS = ("tr", "cut", "rev", "awk", "head", "tail", "sed", "wc", "xargs", "sort", "uniq", "cat")
_CLASSES = {"[:upper:]": "A-Z", "[:lower:]": "a-z", "[:space:]": " \t\n", "[:blank:]": " \t"}
_FIELD = re.compile(r"\{\s*print\s+\$(\d+|NF)\s*;?\s*\}")
_REPLACE = re.compile(r"s([/|#,])((?:(?!\1)[\w .:@=-])*)\1((?:(?!\1)[\w .:@=-])*)\1(g?)")
_MEMBERS = re.compile(r"(.)-(.)|(.)", re.DOTALL)


def passed_on(words: Sequence[str], text: str) -> str:
    """Its output for this input; open where only a run shows it."""
    known = words and words[0] in FILTERS and not any(map(is_open, [*words, text]))
    output = _filtered(words, text) if known else None
    return open_word(f"$({text} | {' '.join(words)})") if output is None else output


def _filtered(words: Sequence[str], text: str) -> str | None:
    """What the command makes of the text; None where only a run shows it."""
    name, given = words[0], list(words[1:])
    lines = text.splitlines()
    match name, given:
        case (("xargs" | "cat"), []):
            return " ".join(text.split()) if name == "xargs" else text
        case "rev", []:
            return "\n".join(line[::-1] for line in lines)
        case "sort", [] | ["-u"]:
            return "\n".join(sorted(set(lines) if given else lines))
        case "uniq", []:
            return "\n".join(line for at, line in enumerate(lines) if not at or lines[at - 1] != line)
        case "wc", ["-l" | "-w"]:
            return str(len(lines if given == ["-l"] else text.split()))
        case "tr", [*options, old, new] if options in ([], ["-s"]):
            return _translated(text, _members(old), _members(new))
        case "tr", ["-d", old]:
            return text.translate(dict.fromkeys(map(ord, _members(old))))
        case "cut", _:
            return _fields(given, lines)
        case "awk", _:
            return _printed(given, lines)
        case (("head" | "tail"), _):
            number = re.fullmatch(r"(?:-n\s*|-)(\d{1,4})", " ".join(given))
            if number is None:
                return None
            count = int(number[1])
            return "\n".join(lines[:count] if name == "head" else lines[max(len(lines) - count, 0) :])
        case "sed", [edit] if match := _REPLACE.fullmatch(edit):
            old, new = match[2], match[3]
            if not old or "." in old:
                return None
            return "\n".join(line.replace(old, new, -1 if match[4] else 1) for line in lines)
    return None


def _members(text: str) -> str:
    for name, members in _CLASSES.items():
        text = text.replace(name, members)
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    pieces = [match.groups() for match in _MEMBERS.finditer(text)]
    return "".join(one or "".join(map(chr, range(ord(first), ord(last) + 1))) for first, last, one in pieces)


def _translated(text: str, old: str, new: str) -> str | None:
    if not old or not new:
        return None
    new = new.ljust(len(old), new[-1])
    return text.translate({ord(a): b for a, b in zip(old, new, strict=False)})


def _fields(given: Sequence[str], lines: Sequence[str]) -> str | None:
    """cut -d SIGN -f NUMBER"""
    match = re.fullmatch(r"-d\0?(.)\0-f\0?(\d{1,3})", "\0".join(given))
    match = match or re.fullmatch(r"(?=-f)-f\0?(?P<n>\d{1,3})\0-d\0?(?P<d>.)", "\0".join(given))
    if match is None:
        return None
    sign, number = (match["d"], match["n"]) if match.groupdict() else (match[1], match[2])
    cut = [line.split(sign) for line in lines]
    return "\n".join(
        parts[int(number) - 1] if len(parts) >= int(number) else parts[0] if len(parts) == 1 else "" for parts in cut
    )


def _printed(given: Sequence[str], lines: Sequence[str]) -> str | None:
    """awk -F SIGN '{print $NUMBER}'"""
    match = re.fullmatch(r"(?:-F\0?([^\0])\0)?([^\0]*)", "\0".join(given))
    field = _FIELD.fullmatch(match[2].strip()) if match else None
    if match is None or field is None:
        return None
    found = list[str]()
    for line in lines:
        parts = line.split(match[1]) if match[1] else line.split()
        number = len(parts) if field[1] == "NF" else int(field[1])
        found.append(line if number == 0 else parts[number - 1] if number <= len(parts) else "")
    return "\n".join(found)
