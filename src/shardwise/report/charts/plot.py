"""What a chart of panels with two axes says: numbers, names and units, no pixels. `plot_svg` draws it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Points = Sequence[tuple[float, float]]


def number_text(value: float) -> str:
    return f"{value:,.4g}"


@dataclass(frozen=True)
class PlotAxis:
    """Panels that are given the same PlotAxis share its ends."""

    title: str = ""
    log: bool = False
    low: float | None = None
    """ends, where they do not follow from what is drawn"""
    high: float | None = None
    text: Callable[[float], str] = number_text
    ticks: tuple[float, ...] | None = None
    """where labels stand, as far as there is room; None: at round numbers"""


@dataclass(frozen=True)
class LineMark:
    points: Points
    name: str = ""
    note: str = ""
    """a second line in the legend"""
    colour: str = ""
    """empty: by its place among the lines and dots of the panel"""
    width: float = 2.0
    stairs: bool = False
    """level until the next point, and on to the end of the last"""
    dots: bool = False


@dataclass(frozen=True)
class DotsMark:
    points: Points
    name: str = ""
    colour: str = ""
    size: float = 4.0
    opacity: float = 0.75
    tips: Sequence[str] = ()
    """one for each; without them all dots are one path, for thousands"""
    ringed: frozenset[int] = frozenset()
    """numbers of points that are marked"""


@dataclass(frozen=True)
class BandMark:
    """Filled between two heights."""

    points: Sequence[tuple[float, float, float]]
    """(x, low, high)"""
    colour: str
    opacity: float = 0.2


@dataclass(frozen=True)
class ColumnsMark:
    """Bars side by side, of equal width from the lowest to the highest end of the axis."""

    heights: Sequence[float]
    colour: str
    opacity: float = 1.0
    gap: float = 1.0
    """pixels between them; 0: one area"""


@dataclass(frozen=True)
class RuleMark:
    """A line across the panel at one value, and what it means."""

    text: str
    x: float | None = None
    y: float | None = None
    colour: str = ""
    dash: str = "5 4"


@dataclass(frozen=True)
class ShadeMark:
    """Part of the horizontal axis, from top to bottom."""

    low: float
    high: float
    colour: str
    opacity: float = 0.1


Mark = LineMark | DotsMark | BandMark | ColumnsMark | RuleMark | ShadeMark


@dataclass(frozen=True)
class Panel:
    title: str
    """what is drawn upwards, with its unit"""
    marks: Sequence[Mark]
    x: PlotAxis
    y: PlotAxis = field(default_factory=PlotAxis)


@dataclass(frozen=True)
class Chart:
    title: str
    panels: Sequence[Panel]
    columns: int = 1
    panel_width: float = 620.0
    panel_height: float = 170.0
    legend: str = ""
    """right or below; empty: none"""
    notes: Sequence[str] = ()
    """lines under the panels"""
    empty: str = "nothing to draw"
    """said where there is no point"""
    heading: bool = True
    """False: the page that holds it says the title"""
