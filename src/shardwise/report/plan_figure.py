"""Policies of a plan as points: what each holds, and how fast it is."""

from collections.abc import Sequence

from shardwise.report.charts import Chart, DotsMark, Panel, PlotAxis, RuleMark


def plan_chart(
    title: str, found: Sequence[tuple[str, float, float]], limit_bytes: float, taken: str | None = None
) -> Chart:
    """`found`: (policy in letters, tokens per second and GPU, bytes of its fullest GPU); `taken` is ringed."""
    ringed = frozenset(place for place, (name, _, _) in enumerate(found) if name == taken)
    dots = DotsMark(
        [(size / 2**30, rate) for _, rate, size in found], "a policy", tips=[name for name, _, _ in found],
        size=5.0, ringed=ringed,
    )  # fmt: skip
    limit = RuleMark(f"memory budget {limit_bytes / 2**30:.1f} GiB", x=limit_bytes / 2**30)
    sizes, rates = zip(*dots.points, strict=True) if found else ((limit_bytes / 2**30,), (0.0,))
    across = _around([*sizes, limit_bytes / 2**30], right=0.25)  # the limit's name stands to its right
    panel = Panel(
        "tokens/s per GPU", [dots, limit], PlotAxis("peak memory of a GPU, GiB", low=across[0], high=across[1]),
        PlotAxis(low=_around(rates)[0], high=_around(rates)[1], text=lambda rate: f"{rate:,.0f}"),
    )  # fmt: skip
    return Chart(title, [panel], panel_height=260.0)


def _around(values: Sequence[float], right: float = 0.08) -> tuple[float, float]:
    """Ends of an axis on which the differences are seen, not the distance from nothing."""
    low, high = min(values), max(values)
    wide = (high - low) or max(abs(high), 1.0) * 0.1
    return low - 0.08 * wide, high + right * wide
