"""Columns of a table as bars: what is read from the cells, and what the rows are called."""

import pytest

from shardwise.report.charts import amounts_svg
from shardwise.report.table_figure import MOST_ROWS, amounts, table_bars


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["3.5", "1,064", "-"], [3.5, 1064.0, None]),
        (["850 ms", "2 s", "1.5 min"], [0.85, 2.0, 90.0]),
        (["1 GB", "512 MB", "3 kB"], [1e9, 512e6, 3e3]),
        (["2 GiB", "512 MiB"], [2 * 2**30, 2**29]),
        (["1.2B", "70M", "900"], [1.2e9, 70e6, 900.0]),
        (["+3.5%", "-1.2%", "0%"], [3.5, -1.2, 0.0]),
        (["519–1,305", "8 x 450 GB/s", "-9% .. +16%", "fits"], [None] * 4),
        (["3 s", "4 GB"], [None, None]),
        (["5e-5", ""], [5e-5, None]),
    ],
)
def test_amounts_are_read_as_the_terminal_writes_them(cells, found):
    assert amounts(cells) == pytest.approx(found)


def test_rows_are_called_what_tells_them_apart():
    heads = ["run", "source", "seconds"]
    rows = [["a", "x", "1"], ["a", "y", "2"], ["b", "x", "-"]]
    made = table_bars("runs", heads, rows, ["seconds"], words=2)
    assert [row.name for row in made.rows] == ["a x", "a y"], "the third has nothing to draw"
    assert made.title == "runs: seconds"
    numbered = table_bars("", ["#", "cut", "ms"], [["1", "whole", "3"], ["2", "rows", "4"]], ["ms"])
    assert [row.name for row in numbered.rows] == ["1 whole", "2 rows"]
    assert table_bars("", ["name", "ms"], [["a", "-"]], ["ms"]) is None
    with pytest.raises(ValueError, match="minutes"):
        table_bars("", ["name", "ms"], [["a", "1"]], ["minutes"])


def test_long_tables_say_what_is_left_out():
    many = table_bars("", ["name", "ms"], [[f"row {n}", str(n)] for n in range(MOST_ROWS + 5)], ["ms"])
    assert len(many.rows) == MOST_ROWS
    assert f"of {MOST_ROWS + 5}" in amounts_svg(many)


def test_bars_are_as_long_as_their_amounts_and_begin_at_zero():
    made = table_bars("", ["name", "change"], [["up", "+30"], ["down", "-10"], ["half", "+15"]], ["change"])
    drawn = amounts_svg(made)
    bars = [
        line for line in drawn.splitlines() if "<title>up" in line or "<title>down" in line or "<title>half" in line
    ]
    widths = [float(line.split('width="')[1].split('"')[0]) for line in bars]
    lefts = [float(line.split('x="')[1].split('"')[0]) for line in bars]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)
    assert widths[0] == pytest.approx(2 * widths[2], rel=0.01)
    assert lefts[0] == lefts[2] == pytest.approx(lefts[1] + widths[1], abs=0.2)
