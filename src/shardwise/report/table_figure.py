"""Columns of a printed table as bars: what the rows are compared by, seen at once."""

import re
from collections.abc import Sequence

from shardwise.report.charts import AmountBars, AmountRow

MOST_ROWS = 100
NOTHING = ("", "-")
_AMOUNT = re.compile(r"^[~<>≤≥=×x]?\s*([+\-−]?)(\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%/ ]*)$")
_SCALES = (
    {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15},
    {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12},
)
"""units that one column may mix, as the terminal writes them"""


def table_bars(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], drawn: Sequence[str], words: int = 1
) -> AmountBars | None:
    """`drawn`: heads of the columns that become bars; the first `words` columns name a row. None where there is nothing
    to compare."""
    places = [heads.index(head) for head in drawn]
    columns = [amounts([row[place] for row in rows]) for place in places]
    kept = [number for number in range(len(rows)) if any(column[number] is not None for column in columns)]
    if not kept:
        return None
    names = _names([rows[number] for number in kept], 2 if heads[0] == "#" else 1, max(words, 1))
    bars = [
        AmountRow(name, [column[number] for column in columns], [rows[number][place] for place in places])
        for name, number in zip(names, kept, strict=True)
    ]
    told = ", ".join(drawn)
    more = f"the first {MOST_ROWS} of {len(bars)}" if len(bars) > MOST_ROWS else ""
    said = len(places) > 1 or told in re.split(r"\W+", title)  # by the legend, or the title
    whole = title if title and said else f"{title}: {told}" if title else told
    return AmountBars(whole, list(drawn), bars[:MOST_ROWS], more)


def amounts(cells: Sequence[str]) -> list[float | None]:
    """The numbers of a column; None where there is none, and everywhere where their units do not belong together."""
    found = [_AMOUNT.match(cell.strip()) for cell in cells]
    units = {each[3].strip() for each in found if each}
    scales = dict.fromkeys(units, 1.0) if len(units) == 1 else _scales(units)
    if scales is None:
        return [None] * len(cells)
    return [None if each is None else _signed(each) * scales[each[3].strip()] for each in found]


def _scales(units: set[str]) -> dict[str, float] | None:
    return next((family for family in _SCALES if units <= set(family)), None)


def _signed(found: re.Match[str]) -> float:
    size = float(found[2].replace(",", ""))
    return size if found[1] in ("", "+") else -size


def _names(rows: Sequence[Sequence[str]], least: int, most: int) -> list[str]:
    """As many of the first columns as tell rows apart."""
    tried = ([" ".join(word for word in row[:wide] if word not in NOTHING) for row in rows]
             for wide in range(least, max(least, most) + 1))  # fmt: skip
    names: list[str] = []
    for names in tried:
        if len(set(names)) == len(names):
            break
    return names
