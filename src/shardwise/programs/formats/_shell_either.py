"""Values of a variable after each of several ways that a script may take: one where they agree, else open."""

from shardwise.programs.formats._shell_words import open_word, shown_word

FEW = 4
"""candidates that are named"""


def agreed(name: str, ends: list[list[str] | None]) -> list[str]:
    """The value that a variable has after each of several ways; open, with the candidates, where they differ."""
    first = ends[0]
    if first is not None and all(end == first for end in ends):
        return first
    lengths = {len(end) for end in ends if end is not None}
    if len(lengths) == 1 and None not in ends and lengths != {1}:
        return [_candidates(name, [(end or [])[at] for end in ends]) for at in range(lengths.pop())]
    if lengths <= {1}:
        lines = [(end or [""])[0].split(" ") for end in ends]
        shortest = min(lines, key=len)
        if shortest != [""] and all(line[: len(shortest)] == shortest for line in lines):
            return [" ".join(_extended(name, lines))]
        return [_candidates(name, ["not set" if end is None else end[0] for end in ends])]
    return _extended(name, [end or [] for end in ends])


def _extended(name: str, ends: list[list[str]]) -> list[str]:
    """What all ways begin with, and the rest of the longest as perhaps there."""
    longest, shortest = max(ends, key=len), min(ends, key=len)
    same = next((at for at, word in enumerate(shortest) if longest[at] != word), len(shortest))
    return [*longest[:same], open_word(f"${name}: perhaps {' '.join(map(shown_word, longest[same:]))}")]


def _candidates(name: str, values: list[str]) -> str:
    different = list(dict.fromkeys(shown_word(value) or "nothing" for value in values))
    if len(different) == 1:
        return values[0]
    more = " or more" if len(different) > FEW else ""
    return open_word(f"${name}: {' or '.join(different[:FEW])}{more}")
