"""Policies of a plan as points: what each holds, and how fast it is."""

from collections.abc import Sequence

from shardwise.charts import Chart, DotsMark, Panel, PlotAxis, RuleMark


def plan_chart(
    title: str, found: Sequence[tuple[str, float, float]], limit_bytes: float, taken: str | None = None
) -> Chart:
    """`found`: (policy in letters, tokens per second and GPU, bytes of its fullest GPU); `taken` is ringed."""
    ringed = frozenset(place for place, (name, _, _) in enumerate(found) if name == taken)
    dots = DotsMark(
        [(size / 2**30, rate) for _, rate, size in found], "a policy", tips=[name for name, _, _ in found],
        size=5.0, ringed=ringed,
    )  # fmt: skip
    limit = RuleMark(f"may fill {limit_bytes / 2**30:.1f} GiB", x=limit_bytes / 2**30)
    panel = Panel("tokens/s per GPU", [dots, limit], PlotAxis("peak memory of a GPU, GiB"))
    return Chart(title, [panel], panel_height=260.0, legend="none")
