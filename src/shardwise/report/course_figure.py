"""How something went: losses over the steps of a run, errors of two strategies, what happened to which rank when."""

from collections.abc import Sequence

from shardwise.report.charts import Chart, DotsMark, LineMark, Mark, Panel, PlotAxis, Points, RuleMark

FEW = 40
"""points of a line that are marked each"""
Lines = Sequence[tuple[str, Points]]


def course_chart(title: str, panels: Sequence[tuple[str, Lines]], across: str, *, log: bool = False) -> Chart:
    """`panels`: what is drawn upwards, and its lines by name; `log`: of the upward axes."""
    x = PlotAxis(across)
    made = [
        Panel(up, [LineMark(points, name, dots=len(points) <= FEW) for name, points in lines if points], x,
              PlotAxis(log=log))
        for up, lines in panels
    ]  # fmt: skip
    several = len(made) == 1 and len(made[0].marks) > 1
    return Chart(title, made, panel_width=760.0, panel_height=190.0, legend="below" if several else "",
                 notes=() if several else _named(panels))  # fmt: skip


def _named(panels: Sequence[tuple[str, Lines]]) -> list[str]:
    """Lines of several panels have no legend in common: the words say which line is which."""
    drawn = [(up, [name for name, points in lines if points]) for up, lines in panels]
    return [f"{up}: {', '.join(names)}" for up, names in drawn if len(names) > 1]


def against_chart(title: str, points: Points, across: str, up: str, marked: tuple[float, str]) -> Chart:
    """One thing against another on a logarithmic axis, the choice that was made marked."""
    heights = [y for _, y in points]
    low, high = min(heights), max(heights)
    ends = PlotAxis(low=low - 0.1 * (high - low), high=high + 0.1 * (high - low))
    marks: list[Mark] = [LineMark(points, up), RuleMark(marked[1], x=marked[0])]
    return Chart(title, [Panel(up, marks, PlotAxis(across, log=True), ends)], panel_width=760.0, panel_height=190.0)


def events_chart(title: str, events: Sequence[tuple[float, int | None, str]], start: str) -> Chart:
    """`events`: (seconds, rank, what happened); `start`: when the first was."""
    first = min((at for at, _, _ in events), default=0.0)
    points = [(at - first, -1.0 if rank is None else float(rank)) for at, rank, _ in events]
    ranks = sorted({place for _, place in points})
    up = PlotAxis(low=min(ranks, default=0.0) - 0.5, high=max(ranks, default=0.0) + 0.5, ticks=tuple(ranks[:12]),
                  text=lambda rank: "log" if rank < 0 else f"{rank:g}")  # fmt: skip
    dots = DotsMark(points, "", tips=[f"{at - first:,.1f} s: {what}" for at, _, what in events], size=5.0)
    return Chart(title, [Panel("rank", [dots], PlotAxis(f"seconds since {start}"), up)], panel_width=760.0,
                 panel_height=max(60.0, min(26.0 * len(ranks), 240.0)))  # fmt: skip
