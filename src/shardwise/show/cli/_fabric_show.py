"""A fabric report on a terminal of 80 columns."""

import math
from collections.abc import Sequence

from shardwise.report.fabric_page import sharing_words, size_text, step_words
from shardwise.report.fabric_report import Burst, FabricReport, TierLoad
from shardwise.report.terminal import policy_text
from shardwise.show.cli._output import print_facts, print_gap, print_notes, print_table
from shardwise.units import time_text

SHADES = " .:-=+*#%@"
WIDTH = 80
BAR = 12


def show_fabric(report: FabricReport) -> None:
    print_facts(f"{report.model} on {report.cluster}: one step on the network", _facts(report))
    if not report.tiers:
        print_notes(["one GPU, or no collective: this step sends nothing"], title="traffic")
        return
    print_gap()
    for line in _matrices(report):
        print(line)
    print_gap()
    _map(report)
    print_gap()
    for line in _over_time(report):
        print(line)
    print_gap()
    _phases(report)
    print_gap()
    _calls(report)
    print_gap()
    _orders(report)


def _facts(report: FabricReport) -> list[tuple[str, str]]:
    switches = ", ".join(f"{count:,} {name}" for name, count in report.switches.items())
    comm = sum(report.communication_s.values())
    found = [
        ("policy", policy_text(report.policy)),
        ("fabric", f"{switches}; routing {report.wiring.routing}, rails {report.wiring.rails}"),
        ("step", step_words(report)),
        ("collectives", f"{time_text(comm)} before overlap "
                        f"(closed form {time_text(sum(report.closed_form_s.values()))})"),
        ("placement", f"{report.placement.axes}, {report.placement.deal}, rings by {report.placement.ring}"),
    ]  # fmt: skip
    if not report.fits:
        found.insert(1, ("memory", "does not fit; what does is below"))
    if report.bottleneck:
        at = report.bottleneck
        found.append(("bottleneck", f"{at.link} ({at.tier}): {at.share:.1%} of the step; {at.why}"))
    if report.burst:
        found.append(("burst", _burst(report.burst)))
    found += [("sharing", words) for words in sharing_words(report)]
    return found


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


def _map(report: FabricReport) -> None:
    """Tier by tier from the top: how full its busiest link is over the step."""
    slowest = report.bottleneck.tier if report.bottleneck else ""
    rows = [
        (f"{t.tier}{' <' if t.tier == slowest else ''}", f"{t.links:,}", f"{t.bytes_per_s / 1e9:,.0f}",
         bar(t.busiest.share), f"{t.busiest.share:.1%}", f"{t.mean_share:.1%}", _kinds(t))
        for t in reversed(report.tiers)
    ]  # fmt: skip
    print_table(
        "load of the links over the step, from the top ('<': the bottleneck)",
        ["tier", "links", "GB/s", "busiest", "", "mean", "the busiest carries"], rows,
    )  # fmt: skip


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


def _phases(report: FabricReport) -> None:
    print_table(
        "phases of a step",
        ["phase", "GPU activity", "network activity", "GPU ms", "NICs"],
        [(p.phase, p.gpu, p.network, f"{p.gpu_s * 1e3:,.1f}",
          "-" if p.network_share is None else f"{p.network_share:.0%}") for p in report.phases],
        words=3,
    )  # fmt: skip


def _calls(report: FabricReport) -> None:
    print_table(
        "collectives of a step, on the link graph and in closed form",
        ["kind", "operation", "ranks", "MB", "times", "ms each", "closed ms", "algorithm"],
        [(c.axis, c.op, c.ranks, f"{c.bytes / 1e6:,.3g}", f"{c.times:,.0f}", f"{c.seconds * 1e3:,.3g}",
          f"{c.closed_form_s * 1e3:,.3g}", c.algorithm) for c in report.calls[:8]],
        words=2,
    )  # fmt: skip


def _orders(report: FabricReport) -> None:
    print_table(
        "placements, the planned one first; before overlap",
        ["axes", "deal", "rings", "collectives", "x", "cross-rail", "cross-leaf"],
        [(o.axes, o.deal, o.ring, time_text(o.communication_s), f"{o.times_planned:.2f}", size_text(o.rail_bytes),
          size_text(o.leaf_bytes)) for o in report.orders],
        words=3,
    )  # fmt: skip


def show_assumptions(report: FabricReport, notes: Sequence[str]) -> None:
    print_notes([*report.assumptions, *notes])
