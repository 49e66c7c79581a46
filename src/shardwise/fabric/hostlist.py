"""Names of hosts as Slurm writes them: `node[001-016,020]` <-> every name."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product

MOST_HOSTS = 65_536
LONGEST_NAME = 253
"""of a host, by DNS"""
_PIECE = re.compile(r"[^,\[\]\s]+|\[[^\[\]]*\]")
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = re.compile(r"(.*?)(\d+)")
WANTED = "names as Slurm writes them, such as node[001-016,020]"


def hosts_of(text: str, where: str) -> list[str]:
    """Every name, in order; `where`: what the user named the list by. A name that comes twice is refused."""
    found: list[str] = []
    for part in _parts(text, where):
        found += _expanded(part, where, MOST_HOSTS - len(found))
    twice = first_twice(found)
    if twice is not None:
        raise ValueError(f"{where}: {twice!r} is listed twice; write each host once")
    return found


def first_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _parts(text: str, where: str) -> Iterator[str]:
    """Cut at commas and white space outside brackets."""
    part, depth = "", 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"{where}: {text[:60]!r} has brackets that do not match; write {WANTED}")
        if depth == 0 and (letter == "," or letter.isspace()):
            if part:
                yield part
            part = ""
        else:
            part += letter
    if depth:
        raise ValueError(f"{where}: {text[:60]!r} has brackets that do not match; write {WANTED}")
    if part:
        yield part


def _expanded(part: str, where: str, room: int) -> list[str]:
    choices: list[list[str]] = []
    count = 1
    for piece in _PIECE.findall(part):
        choices.append(_numbers(piece[1:-1], part, where) if piece.startswith("[") else [piece])
        count *= len(choices[-1])
        if count > room:
            raise ValueError(f"{where}: {part[:60]!r} makes more than {MOST_HOSTS:,} hosts; write fewer")
    found = ["".join(each) for each in product(*choices)]
    for name in found:
        if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            raise ValueError(f"{where}: {name[:60]!r} is not a host name; write {WANTED}")
    return found


def _numbers(text: str, part: str, where: str) -> list[str]:
    found: list[str] = []
    for word in text.split(","):
        matched = _RANGE.fullmatch(word.strip())
        if matched is None or (matched[2] and int(matched[2]) < int(matched[1])):
            raise ValueError(f"{where}: {word[:40]!r} in {part[:60]!r} is not a range; write {WANTED}")
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if last - first >= MOST_HOSTS:
            raise ValueError(f"{where}: {word!r} makes more than {MOST_HOSTS:,} hosts; write fewer")
        found += [str(number).zfill(len(matched[1])) for number in range(first, last + 1)]
    return found


def hostlist(names: Sequence[str]) -> str:
    """The shortest list Slurm reads, sorted as Slurm sorts: hosts that differ in their last number share brackets."""
    numbered: dict[tuple[str, int], list[int]] = {}
    plain = []
    for name in names:
        matched = _NUMBERED.fullmatch(name)
        if matched is None:
            plain.append(name)
        else:
            numbered.setdefault((matched[1], len(matched[2])), []).append(int(matched[2]))
    lists = [prefix + _bracketed(sorted(each), width) for (prefix, width), each in sorted(numbered.items())]
    return ",".join([*sorted(plain), *lists])


def _bracketed(numbers: Sequence[int], width: int) -> str:
    runs = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        each = [str(number).zfill(width) for _, number in run]
        runs.append(each[0] if len(each) == 1 else f"{each[0]}-{each[-1]}")
    return runs[0] if len(numbers) == 1 else f"[{','.join(runs)}]"
