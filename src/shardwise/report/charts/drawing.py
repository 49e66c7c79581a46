"""SVG text: the only place that writes tags. One file, no script, nothing from outside, a ground of its own: white, or
dark where the reader's system is."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html import escape

from shardwise.report.charts.ink import FONT, INK, at_night

Spots = Iterable[tuple[float, float]]
"""in pixels"""


def short(value: float) -> str:
    """A pixel's tenth is as fine as anyone sees."""
    return f"{value:.1f}".removesuffix(".0")


MARK = '<svg xmlns="http://www.w3.org/2000/svg" role="img"'
"""how every drawing begins"""
_COLOURED = re.compile(r'\b(fill|stroke)="(#(?:[0-9a-f]{6}|fff))"')


def night_style(body: str) -> str:
    """Rules for the colours that a drawing has, where the reader's system is dark; they win over attributes."""
    used = sorted({("fill", INK), *_COLOURED.findall(body)})
    rules = "".join(f'[{name}="{colour}"]{{{name}:{at_night(colour)}}}' for name, colour in used)
    return f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"


class Drawing:
    """Pixels from the top left. `tip`: what is told when the pointer rests on a thing, and to who hears the page."""

    def __init__(self, width: float, height: float, title: str, told: str = "") -> None:
        self.width, self.height, self.title, self.told = width, height, title, told
        self._parts: list[str] = []

    def __str__(self) -> str:
        size = f'viewBox="0 0 {short(self.width)} {short(self.height)}" width="{short(self.width)}"'
        told = f"<desc>{escape(self.told)}</desc>" if self.told else ""
        body = '<rect width="100%" height="100%" fill="#fff"/>' + "\n".join(self._parts)
        return (
            f'{MARK} {size} height="{short(self.height)}" '
            f'style="max-width:100%;height:auto" font-family="{FONT}" font-size="12" fill="{INK}">'
            f"<title>{escape(self.title)}</title>{told}{night_style(body)}{body}</svg>\n"
        )

    def _add(self, tag: str, tip: str = "", inner: str = "", **attributes: str | float | None) -> None:
        words = "".join(
            f' {name.replace("_", "-")}="{escape(value) if isinstance(value, str) else short(value)}"'
            for name, value in attributes.items()
            if value is not None
        )
        inner = (f"<title>{escape(tip)}</title>" if tip else "") + inner
        self._parts.append(f"<{tag}{words}>{inner}</{tag}>" if inner else f"<{tag}{words}/>")

    @contextmanager
    def group(self, **attributes: str) -> Iterator[None]:
        words = "".join(f' {name.replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
        self._parts.append(f"<g{words}>")
        yield
        self._parts.append("</g>")

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1.0, dash: str = "",
             opacity: float | None = None, tip: str = "") -> None:  # fmt: skip
        self._add("line", tip, x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=None if width == 1 else width,
                  stroke_dasharray=dash or None, stroke_opacity=opacity)  # fmt: skip

    def rect(self, x: float, y: float, width: float, height: float, fill: str, *, opacity: float | None = None,
             stroke: str | None = None, rounded: float | None = None, tip: str = "") -> None:  # fmt: skip
        self._add("rect", tip, x=x, y=y, width=width, height=height, fill=fill, rx=rounded, stroke=stroke,
                  fill_opacity=None if opacity is None else f"{opacity:.2f}",
                  stroke_width=None if stroke is None else "0.5")  # fmt: skip

    def circle(self, x: float, y: float, radius: float, fill: str, *, ring: str | None = None,
               opacity: float | None = None, tip: str = "") -> None:  # fmt: skip
        self._add("circle", tip, cx=x, cy=y, r=radius, fill=fill, stroke=ring,
                  stroke_width=None if ring is None else 2, fill_opacity=opacity and f"{opacity:.2f}")  # fmt: skip

    def dots(self, spots: Spots, colour: str, size: float, opacity: float) -> None:
        """One path for all: each is a stroke of no length with round ends. For thousands."""
        way = "".join(f"M{short(x)} {short(y)}h0" for x, y in spots)
        self._add("path", d=way, stroke=colour, stroke_width=size, stroke_linecap="round", opacity=f"{opacity:.2f}")

    def polyline(self, spots: Spots, colour: str, *, width: float = 2.0, dash: str = "", tip: str = "") -> None:
        self._add("polyline", tip, points=_points(spots), fill="none", stroke=colour, stroke_width=width,
                  stroke_dasharray=dash or None)  # fmt: skip

    def polygon(self, spots: Spots, fill: str, *, opacity: float) -> None:
        self._add("polygon", points=_points(spots), fill=fill, fill_opacity=f"{opacity:.2f}")

    def path(self, way: str, *, fill: str | None = None, stroke: str | None = None, width: float | None = None,
             dash: str = "", tip: str = "") -> None:  # fmt: skip
        """`way`: as SVG writes paths; for lanes and curves of very many pieces."""
        self._add("path", tip, d=way, fill=fill, stroke=stroke, stroke_width=width, stroke_dasharray=dash or None)

    def text(self, x: float, y: float, words: str, *, size: float | None = None, anchor: str | None = None,
             bold: bool = False, colour: str | None = None, turn: float | None = None, halo: bool = False,
             after: str = "") -> None:  # fmt: skip
        """`after`: grey and smaller behind the words; `halo`: white around them, for words on lines."""
        tail = f'<tspan fill="#5b6068" font-size="11.5">{escape(after)}</tspan>' if after else ""
        around = {"stroke": "#fff", "stroke_width": "4", "stroke_linejoin": "round", "paint_order": "stroke"}
        turned = None if turn is None else f"rotate({short(turn)} {short(x)} {short(y)})"
        self._add("text", inner=escape(words, quote=False) + tail, x=x, y=y, font_size=size, text_anchor=anchor,
                  font_weight="600" if bold else None, fill=colour, transform=turned,
                  **(around if halo else {}))  # fmt: skip


def _points(spots: Spots) -> str:
    return " ".join(f"{short(x)},{short(y)}" for x, y in spots)
