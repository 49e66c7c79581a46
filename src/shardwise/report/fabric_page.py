"""The whole fabric study as one HTML file: no script, no outside file."""

from collections.abc import Iterable, Sequence
from html import escape

from shardwise.report.charts import chart_svg, heat_svg, tiers_svg
from shardwise.report.fabric_figures import map_chart, matrix_chart, series_chart
from shardwise.report.fabric_report import FabricMap, FabricReport
from shardwise.report.terminal import policy_text
from shardwise.report.timeline_page import MARK, STYLE
from shardwise.units import time_text

MORE = """
section { margin: 0 24px 28px; } section > svg { margin: 4px 0; } section table { margin: 0; }
p { margin: 6px 0; color: #5b6068; } td.words { text-align: left; } dl { display: grid; grid-template-columns: 9em auto;
margin: 8px 24px; } dt { color: #5b6068; } dd { margin: 0; } h1 { margin: 12px 24px; font-size: 22px; }
section h2 { margin: 16px 0 8px; }
"""


WORTH_SAYING = 1e-3
"""share of the step below which sharing is not told"""


def size_text(size: float) -> str:
    """Bytes for people: '12.3 GB'."""
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def step_words(report: FabricReport) -> str:
    return (
        f"{time_text(report.step_s)} at flow level, all traffic on the links at once; {time_text(report.unshared_s)} "
        f"each kind alone, {time_text(report.simulated_s)} simulated, "
        f"{time_text(report.closed_form_step_s)} closed form"
    )


def sharing_words(report: FabricReport) -> list[str]:
    """What each kind of traffic loses to the others on the links, where it is worth saying."""
    return [
        f"{axis} loses {time_text(seconds)} of a step to {by}"
        for axis, others in report.slowed_s.items()
        for by, seconds in others.items()
        if seconds >= WORTH_SAYING * report.step_s
    ]


def fabric_page(report: FabricReport, loads: FabricMap | None, extra: Sequence[tuple[str, str]] = (),
                notes: Sequence[str] = ()) -> str:  # fmt: skip
    """`loads`: None for a fabric from a file; `extra`: further sections, (title, HTML)."""
    title = f"{report.model} on {report.cluster}: one step on the network"
    totals = {kind: size_text(sum(map(sum, table))) for kind, table in report.matrix_bytes.items()}
    sections = [
        (
            "The fabric, coloured by load",
            tiers_svg(map_chart(loads)) if loads else "<p>a fabric from a file: see the links below</p>",
        ),
        ("Who sends to whom, by kind of parallelism", heat_svg(matrix_chart(report, totals))),
        ("Load over one step", chart_svg(series_chart(report, time_text(report.step_s)))),
        ("Phases of a step", _phases(report)),
        ("Collectives, on the link graph and in closed form", _calls(report)),
        ("Links", _links(report)),
        ("Placements, the planned one first; before overlap", _orders(report)),
        *extra,
        ("Assumptions", html_list((*report.assumptions, *notes))),
    ]
    body = "\n".join(f"<section><h2>{escape(name)}</h2>{inner}</section>" for name, inner in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"/>{MARK}<title>{escape(title)}</title>'
        f"<style>{STYLE}{MORE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n{_facts(report)}\n{body}\n</body>\n"
        "</html>\n"
    )


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """The first `words` columns are text."""
    head = "".join(f"<th{_left(i, words)}>{escape(h)}</th>" for i, h in enumerate(heads))
    body = "\n".join(
        "<tr>" + "".join(f"<td{_left(i, words)}>{escape(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def html_list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _left(column: int, words: int) -> str:
    return ' class="words" style="text-align:left"' if column < words else ""


def _facts(report: FabricReport) -> str:
    facts = [
        ("policy", policy_text(report.policy)),
        ("fabric", ", ".join(f"{count:,} {name}" for name, count in report.switches.items())),
        ("step", step_words(report)),
        ("collectives", f"{time_text(sum(report.communication_s.values()))} before overlap"),
        ("placement", f"{report.placement.axes}, {report.placement.deal}, rings by {report.placement.ring}"),
    ]
    if report.bottleneck:
        facts.append(("bottleneck", f"{report.bottleneck.link}: {report.bottleneck.share:.1%} of the step; "
                                    f"{report.bottleneck.why}"))  # fmt: skip
    if report.burst:
        facts.append(("burst", f"{size_text(report.burst.bytes)} of gradients per NIC, peak "
                               f"{report.burst.peak_share:.0%} of line rate"))  # fmt: skip
    facts += [("sharing", words) for words in sharing_words(report)]
    return "<dl>" + "".join(f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in facts) + "</dl>"


def _phases(report: FabricReport) -> str:
    return html_table(
        ["phase", "GPU activity", "network activity", "GPU ms", "NICs"],
        [(p.phase, p.gpu, p.network, f"{p.gpu_s * 1e3:,.1f}",
          "-" if p.network_share is None else f"{p.network_share:.0%}") for p in report.phases], words=3,
    )  # fmt: skip


def _calls(report: FabricReport) -> str:
    return html_table(
        ["kind", "operation", "algorithm", "slowest link", "ranks", "size", "times", "each", "closed form"],
        [(c.axis, c.op, c.algorithm, c.bottleneck or "-", f"{c.ranks:,}", size_text(c.bytes), f"{c.times:,.0f}",
          time_text(c.seconds), time_text(c.closed_form_s)) for c in report.calls], words=4,
    )  # fmt: skip


def _links(report: FabricReport) -> str:
    return html_table(
        ["one of them", "tier", "carries", "links", "GB/s", "bytes in a step", "share of the step", "peak"],
        [(link.name, link.tier, ", ".join(f"{a} {size_text(s)}" for a, s in link.axes_bytes.items()) or "nothing",
          f"{link.count:,}", f"{link.bytes_per_s / 1e9:,.0f}", size_text(link.step_bytes), f"{link.share:.2%}",
          f"{link.peak_share:.0%}") for link in report.links[:40]], words=3,
    )  # fmt: skip


def _orders(report: FabricReport) -> str:
    return html_table(
        ["axes, innermost first", "deal", "rings", "collectives of a step", "x planned", "cross-rail", "cross-leaf"],
        [(o.axes, o.deal, o.ring, time_text(o.communication_s), f"{o.times_planned:.2f}", size_text(o.rail_bytes),
          size_text(o.leaf_bytes)) for o in report.orders], words=3,
    )  # fmt: skip
