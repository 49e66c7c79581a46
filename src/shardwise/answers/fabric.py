"""`fabric`: what a policy does to the network, link by link, and what it asks of the fabric."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec import UNSET
from msgspec.structs import asdict

from shardwise.answers._fabric_sheet import budget_parts, packet_parts, requirement_parts, what_if_parts
from shardwise.answers._that_fit import NearPolicy, near_notes, near_policies, room_of
from shardwise.answers.answer import Cell, FactList, Figure, Notes, Part, Rendered, Table, Text
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.answers.fabric_expect import ExpectAnswer
from shardwise.answers.html import html_of_parts, titled
from shardwise.fabric.requirement import Requirement, requirement_of
from shardwise.plan.that_fit import policies_that_fit
from shardwise.question import PolicyQuestion
from shardwise.question.studies.fabric.budget import cheapest
from shardwise.question.studies.fabric.build import FabricStudy
from shardwise.question.studies.fabric.load_map import map_of
from shardwise.question.studies.fabric.whatif import WhatIfRow
from shardwise.report.charts import chart_svg, heat_svg, tiers_svg
from shardwise.report.fabric_figures import map_chart, matrix_chart, series_chart
from shardwise.report.fabric_report import Burst, FabricMap, FabricOption, FabricReport, TierLoad
from shardwise.report.packet_report import PacketReport
from shardwise.report.terminal import policy_text, size_text
from shardwise.units import time_text

SHADES = " .:-=+*#%@"
WIDTH = 80
BAR = 12
SHOWN_CALLS, SHOWN_LINKS = 8, 40
WORTH_SAYING = 1e-3
"""share of the step below which sharing is not listed"""


class FabricAnswer(FabricReport, Rendered, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("room_bytes", "within", "sheet")
    origin_first: ClassVar[bool] = True

    legal: bool
    requirement: Requirement
    what_if: Sequence[WhatIfRow] | None
    fabrics: Sequence[FabricOption] | None
    cheapest: Sequence[FabricOption] | None
    price_sources: Sequence[str] | None
    packets: PacketReport | None
    map: FabricMap | None
    """none for a fabric from a file"""
    that_fit: Sequence[NearPolicy]
    policy_origin: str
    notes: Sequence[str]
    room_bytes: Any = UNSET
    within: Any = UNSET
    """share of the best MFU that the cheapest fabric may lose"""
    sheet: Any = UNSET
    """whether a terminal shows the requirement sheet, which a page always does"""

    @property
    def exit_code(self) -> int:
        return 0 if self.fits else 1

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [*self.assumptions, *notes]

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.model} on {self.cluster}: one step on the network", self._facts())
        if not self.tiers:
            yield Notes(["one GPU, or no collective: this step sends nothing"], "traffic")
        else:
            yield from self._step()
            yield from self._further()
        if not self.fits:
            yield near_notes(self.room_bytes, self.policy, self.that_fit)

    def _step(self) -> Iterator[Part]:
        totals = {kind: size_text(sum(map(sum, table))) for kind, table in self.matrix_bytes.items()}
        heat = "who sends to whom, by kind of parallelism"
        yield Figure(lambda: titled(heat, heat_svg(matrix_chart(self, totals))), [Text("\n".join(_matrices(self)))])
        loads = self.map
        drawn = "a fabric from a file: see its links"
        yield Figure(lambda: titled("the fabric, coloured by load", tiers_svg(map_chart(loads)) if loads else drawn))
        yield _tiers(self)
        series = Text("\n".join(_over_time(self)))
        chart = series_chart(self, time_text(self.step_s))
        yield Figure(lambda: titled("load over one step", chart_svg(chart)), [series])
        yield Table(
            "phases of a step", ["phase", "GPU activity", "network activity", "GPU ms", "NICs"],
            [(p.phase, p.gpu, p.network, f"{p.gpu_s * 1e3:,.1f}",
              "-" if p.network_share is None else f"{p.network_share:.0%}") for p in self.phases],
            words=3,
        )  # fmt: skip
        yield Table(
            "collectives of a step, on the link graph and in closed form",
            ["kind", "operation", "ranks", "MB", "times", "ms each", "closed ms", "algorithm"],
            [(c.axis, c.op, c.ranks, f"{c.bytes / 1e6:,.3g}", f"{c.times:,.0f}", f"{c.seconds * 1e3:,.3g}",
              f"{c.closed_form_s * 1e3:,.3g}", c.algorithm) for c in self.calls[:SHOWN_CALLS]],
            words=2,
        )  # fmt: skip
        yield Figure(lambda: html_of_parts([_links(self)]))
        yield Table(
            "placements, the planned one first; before overlap",
            ["axes", "deal", "rings", "collectives", "x", "cross-rail", "cross-leaf"],
            [(o.axes, o.deal, o.ring, time_text(o.communication_s), f"{o.times_planned:.2f}", size_text(o.rail_bytes),
              size_text(o.leaf_bytes)) for o in self.orders],
            words=3,
        )  # fmt: skip

    def _further(self) -> Iterator[Part]:
        if self.what_if:
            yield from what_if_parts(self.what_if)
        if self.sheet:
            yield from requirement_parts(self.requirement)
        else:
            yield Figure(lambda: html_of_parts(requirement_parts(self.requirement)))
        if self.fabrics:
            yield from budget_parts(self.fabrics, self.within)
        if self.packets is not None:
            yield from packet_parts(self.packets)

    def _facts(self) -> list[tuple[str, Cell]]:
        switches = ", ".join(f"{count:,} {name}" for name, count in self.switches.items())
        found: list[tuple[str, Cell]] = [
            ("policy", policy_text(self.policy)), ("memory", None if self.fits else "does not fit; what does is below"),
            ("fabric", f"{switches}; routing {self.wiring.routing}, rails {self.wiring.rails}"),
            ("step", _step_words(self)),
            ("collectives", f"{time_text(sum(self.communication_s.values()))} before overlap "
                            f"(closed form {time_text(sum(self.closed_form_s.values()))})"),
            ("placement", f"{self.placement.axes}, {self.placement.deal}, rings by {self.placement.ring}"),
        ]  # fmt: skip
        if self.bottleneck:
            at = self.bottleneck
            found.append(("bottleneck", f"{at.link} ({at.tier}): {at.share:.1%} of the step; {at.why}"))
        if self.burst:
            found.append(("burst", _burst(self.burst)))
        return found + [("sharing", words) for words in _sharing_words(self)]


ANSWERS = (FabricAnswer, CannotRunAnswer, ExpectAnswer)


def fabric_answer(
    ask: PolicyQuestion, studied: FabricStudy, *, what_if: Sequence[WhatIfRow] = (),
    fabrics: Sequence[FabricOption] = (), within: float = 0.0, price_sources: Sequence[str] = (),
    packets: PacketReport | None = None, sheet: bool = False,
) -> FabricAnswer:  # fmt: skip
    """Of a step that was studied, with what else was asked about it."""
    report = studied.report
    near = [] if report.fits else policies_that_fit(ask.case, ask.policy)
    return FabricAnswer(
        **asdict(report), legal=True, requirement=requirement_of(studied.load, report.step_s), what_if=what_if or None,
        fabrics=fabrics or None, cheapest=cheapest(list(fabrics), within) or None,
        price_sources=price_sources or None, packets=packets, map=map_of(studied.load, report.step_s),
        that_fit=near_policies(near, report.step_s), policy_origin=ask.origin, notes=ask.notes,
        room_bytes=room_of(ask.case), within=within, sheet=sheet,
    )  # fmt: skip


def _step_words(report: FabricReport) -> str:
    return (
        f"{time_text(report.step_s)} at flow level, all traffic on the links at once; {time_text(report.unshared_s)} "
        f"each kind alone, {time_text(report.simulated_s)} simulated, "
        f"{time_text(report.closed_form_step_s)} closed form"
    )


def _sharing_words(report: FabricReport) -> list[str]:
    """What each kind of traffic loses to the others on the links, where it is worth saying."""
    return [
        f"{axis} loses {time_text(seconds)} of a step to {by}"
        for axis, others in report.slowed_s.items()
        for by, seconds in others.items()
        if seconds >= WORTH_SAYING * report.step_s
    ]


def _burst(burst: Burst) -> str:
    return (
        f"gradients: {size_text(burst.bytes)} per NIC between {time_text(burst.start_s)} and "
        f"{time_text(burst.end_s)}, peak {burst.peak_share:.0%} of line rate, mean of the step {burst.mean_share:.1%}"
    )


def _matrices(report: FabricReport) -> list[str]:
    """Kinds side by side: rows send, columns receive, ten shades on a logarithmic scale."""
    blocks = len(report.blocks)
    wide = 2 if blocks <= 8 else 1
    cell = max(blocks * wide, 14) + 3
    lines = [f"who sends to whom ({report.blocks[0]} ... {report.blocks[-1]}; rows send)"]
    kinds = list(report.matrix_bytes)
    per_line = max(WIDTH // cell, 1)
    for first in range(0, len(kinds), per_line):
        shown = kinds[first : first + per_line]
        lines.append("".join(f"{_title(report, kind):<{cell}}" for kind in shown).rstrip())
        tables = [_shaded(report.matrix_bytes[kind], wide) for kind in shown]
        lines += ["".join(f"{table[row]:<{cell}}" for table in tables).rstrip() for row in range(blocks)]
    lines.append(f"shades {SHADES[1:]}: each is twice the one before, {SHADES[-1]} the most of its kind")
    return lines


def _title(report: FabricReport, kind: str) -> str:
    total = sum(map(sum, report.matrix_bytes[kind]))
    return f"{kind} {size_text(total)}"


def _shaded(table: list[list[float]], wide: int) -> list[str]:
    most = max(map(max, table))
    return ["|" + "".join(_shade(value, most) * wide for value in row) + "|" for row in table]


def _shade(value: float, most: float) -> str:
    if value <= 0:
        return SHADES[0]
    return SHADES[max(len(SHADES) - 1 + math.ceil(math.log2(value / most)), 1)]


def _tiers(report: FabricReport) -> Table:
    """Tier by tier from the top: how full its busiest link is over the step."""
    slowest = report.bottleneck.tier if report.bottleneck else ""
    rows = [
        (f"{t.tier}{' <' if t.tier == slowest else ''}", f"{t.links:,}", f"{t.bytes_per_s / 1e9:,.0f}",
         bar(t.busiest.share), f"{t.busiest.share:.1%}", f"{t.mean_share:.1%}", _kinds(t))
        for t in reversed(report.tiers)
    ]  # fmt: skip
    heads = ["tier", "links", "GB/s", "busiest", "", "mean", "the busiest carries"]
    return Table("load of the links over the step, from the top ('<': the bottleneck)", heads, rows)


def _links(report: FabricReport) -> Table:
    rows = [
        (link.name, link.tier, ", ".join(f"{a} {size_text(s)}" for a, s in link.axes_bytes.items()) or "nothing",
         f"{link.count:,}", f"{link.bytes_per_s / 1e9:,.0f}", size_text(link.step_bytes), f"{link.share:.2%}",
         f"{link.peak_share:.0%}")
        for link in report.links[:SHOWN_LINKS]
    ]  # fmt: skip
    heads = ["one of them", "tier", "carries", "links", "GB/s", "bytes in a step", "share of the step", "peak"]
    return Table("links", heads, rows, words=3)


def bar(share: float, width: int = BAR) -> str:
    full = min(round(share * width), width)
    return "#" * full + "." * (width - full)


def _kinds(tier: TierLoad) -> str:
    total = tier.busiest.step_bytes or 1.0
    return ", ".join(f"{axis} {size / total:.0%}" for axis, size in tier.busiest.axes_bytes.items())


def _over_time(report: FabricReport) -> list[str]:
    lines = [f"busiest link of each tier over one step ({time_text(report.step_s)}; peak of each part)"]
    name = max((len(t.tier) for t in report.tiers), default=0)
    room = WIDTH - name - len(" || peak 1000%")
    lines += [
        f"{tier.tier:<{name}} |{sparkline(tier.series, room)}| peak {tier.busiest.peak_share:.0%}"
        for tier in reversed(report.tiers)
    ]
    if report.burst:
        burst = report.burst
        lines.append(f"the gradient burst, {time_text(burst.from_s)} to {time_text(burst.to_s)}, on the busiest NIC")
        lines.append(f"{'':<{name}} |{sparkline(burst.series, room)}| peak {max(burst.series):.0%}")
    return lines


def sparkline(values: Sequence[float], width: int) -> str:
    """Ten shades from idle to line rate; the highest value of each part."""
    parts = [values[i * len(values) // width : max((i + 1) * len(values) // width, i * len(values) // width + 1)]
             for i in range(width)]  # fmt: skip
    return "".join(SHADES[min(math.ceil(max(part) * (len(SHADES) - 1) - 0.01), len(SHADES) - 1)] for part in parts)
