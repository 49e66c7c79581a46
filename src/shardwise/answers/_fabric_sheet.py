"""Further questions about a step's traffic: what-ifs, the requirement sheet, the cheapest fabric, packets."""

from collections.abc import Iterator, Sequence

from shardwise.answers.answer import Cell, FactList, Figure, Notes, Part, Table, text_of
from shardwise.fabric.requirement import THINNEST, Requirement
from shardwise.question.studies.fabric.budget import cheapest
from shardwise.question.studies.fabric.whatif import JOINT, WhatIfRow
from shardwise.report.charts import chart_svg
from shardwise.report.fabric_figures import budget_chart, bus_chart
from shardwise.report.fabric_report import FabricOption
from shardwise.report.packet_figure import queue_chart
from shardwise.report.packet_report import PacketCall, PacketReport
from shardwise.report.terminal import size_text
from shardwise.spec.policy import AXES
from shardwise.units import time_text

TIER_HEADS = ("tier", "has GB/s", "mean GB/s", "x thinner +1%", "+5%", "+10%", "needs GB/s")
WHAT_IF_HEADS = ("what if", "change", "collectives", "x", "step", "", "p95")
FABRIC_HEADS = ("rails", "policy", "Gb/s", "over", "NVLink", "USD/GPU", "ports", "MFU", "lost")
MOST_FABRICS = 16
PRICED = ("prices: optics at both ends of every cable, no servers, power or support; sources in JSON, others with "
          "--prices FILE.toml")  # fmt: skip
PACKET_HEADS = ("collective", "x rates", "worst", "p50 us", "p99", "p99.9", "kB", "lost", "marks", "pauses")
LOSS_HEADS = ("sent again", "a loss", "at the end")


def what_if_parts(rows: Sequence[WhatIfRow]) -> Iterator[Part]:
    cells = [(r.name, r.what, time_text(r.communication_s), f"{r.times:.2f}", time_text(r.step_s), f"{r.growth:+.1%}",
              time_text(r.step_p95_s) if r.step_p95_s else "") for r in rows]  # fmt: skip
    yield Table("what if, each alone", WHAT_IF_HEADS, cells, words=2)
    yield Notes([_what_if_note(rows)], "answered")


def _what_if_note(rows: Sequence[WhatIfRow]) -> str:
    loose = [r.name for r in rows if r.answered != JOINT]
    if not loose:
        return "steps by the joint loop; p95 over the seeds of a hash"
    return f"steps by the joint loop; {', '.join(loose)}: kinds priced alone, all that they gain counted as waited for"


def requirement_parts(need: Requirement) -> Iterator[Part]:
    tiers = [
        (t.tier, f"{t.link_bytes_per_s / 1e9:,.0f}", text_of(t.mean_bytes_per_s / 1e9),
         *(_factor(f) for f in t.oversubscription.values()), text_of(t.needed_bytes_per_s / 1e9))
        for t in need.tiers
    ]  # fmt: skip
    yield Table("requirements of each tier", TIER_HEADS, tiers)
    if not need.benchmark:
        return
    yield FactList("budgets", _budgets(need))
    yield Figure(lambda: chart_svg(bus_chart(need.benchmark)))
    heads = ["size", *(f"{b.op} x{b.ranks}" for b in need.benchmark)]
    yield Table("bus bandwidth to expect, GB/s", heads, _benchmark_rows(need))
    yield Notes([b.command for b in need.benchmark], "test with")
    yield Notes([f"{w.what} ({w.where}): {w.why}" for w in need.watch], "watch")


def _factor(value: float) -> str:
    return "any" if value >= THINNEST else f"{value:.2f}"


def _budgets(need: Requirement) -> list[tuple[str, Cell]]:
    budgets = [
        " / ".join(time_text(s) for s in each.values()) for each in (need.latency_budget_s, need.jitter_budget_s)
    ]
    facts: list[tuple[str, Cell]] = [
        ("rail", f"{text_of(need.rail_bytes_per_s / 1e9)} GB/s from all NICs of the fullest rail, mean of the step"),
        ("latency", f"each dependent message may gain {budgets[0]} (step +1, 5, 10 %)"),
        ("jitter", f"mean delay of one rank in one collective {budgets[1]}"),
        ("loss", f"{need.packets:,.3g} packets a step; +1 % at {need.loss_rate_nak:.1e} lost if asked for again, "
                 f"{need.loss_rate_timeout:.1e} if each times out"),
    ]  # fmt: skip
    facts += [
        ("buffer", f"{b.op}: {b.senders} sender{'s' * (b.senders > 1)} to one NIC, {size_text(b.bytes)} a round trip")
        for b in need.buffers[:2]
    ]
    if need.ecn_mark_bytes:
        mark = f"mark from {size_text(need.ecn_mark_bytes)} in front of a NIC: one round trip at line rate"
        facts.append(("ECN", mark))
    return facts


def _benchmark_rows(need: Requirement) -> list[Sequence[Cell]]:
    """One row per size, one column per collective worth testing."""
    return [
        (size_text(need.benchmark[0].expected[i].bytes),
         *(f"{b.expected[i].low_bytes_per_s / 1e9:,.0f}-{b.expected[i].high_bytes_per_s / 1e9:,.0f}"
           for b in need.benchmark))
        for i in range(len(need.benchmark[0].expected))
    ]  # fmt: skip


def budget_parts(rows: Sequence[FabricOption], within: float) -> Iterator[Part]:
    front = efficient(rows)
    cells = [(c.rails, _short_policy(c), f"{c.card_bytes_per_s * 8 / 1e9:,.0f}", f"{c.oversubscription:g}:1",
              f"{c.domain_gpus}", f"{c.usd_per_gpu:,.0f}", f"{c.ports_per_gpu:.2f}", f"{c.mfu:.1%}",
              f"{c.below_best:.1%}") for c in front[:MOST_FABRICS]]  # fmt: skip
    yield Figure(lambda: chart_svg(budget_chart(list(rows), cheapest(list(rows), within), within)))
    yield Table(f"fabrics that nothing cheaper beats, of {len(rows)} tried", FABRIC_HEADS, cells, words=2)
    yield Notes(_budget_words(rows, within), f"cheapest within {within:.1%} of the best MFU")


def _short_policy(row: FabricOption) -> str:
    """Its degrees: 'tp 8 pp 4'."""
    degrees = {axis: getattr(row.policy, axis) for axis in AXES if axis != "dp"}
    return " ".join(f"{axis} {size}" for axis, size in degrees.items() if size > 1) or f"dp {row.policy.dp}"


def _budget_words(rows: Sequence[FabricOption], within: float) -> list[str]:
    chosen = cheapest(list(rows), within)
    if not chosen:
        return [f"no fabric tried stays within {within:.1%} of the best MFU"]
    found = [
        f"NVLink domain {c.domain_gpus}: {c.card_bytes_per_s * 8 / 1e9:,.0f} Gb/s NICs, {c.oversubscription:g}:1 "
        f"above the leaves, rails {c.rails}, {_short_policy(c)}: {c.usd_per_gpu:,.0f} USD per GPU ({_bill(c)}), "
        f"MFU {c.mfu:.1%}{_joint(c)}"
        for c in chosen
    ]
    return [*found, PRICED]


def _bill(row: FabricOption) -> str:
    bill = row.bill
    parts = (
        ("NICs", bill.cards),
        ("switch ports", bill.switch_ports),
        ("optics", bill.optics),
        ("NVLink", bill.nvlink),
    )
    return ", ".join(f"{name} {usd:,.0f}" for name, usd in parts if usd)


def _joint(row: FabricOption) -> str:
    if row.joint_step_s is None:
        return ""
    return f"; step {time_text(row.step_s)}, {time_text(row.joint_step_s)} by the joint loop"


def efficient(rows: Sequence[FabricOption]) -> list[FabricOption]:
    """Cheapest first, each faster than all before it."""
    front: list[FabricOption] = []
    for each in rows:
        if not front or each.mfu > front[-1].mfu * (1 + 1e-4):
            front.append(each)
    return front


def packet_parts(report: PacketReport) -> Iterator[Part]:
    yield Figure(lambda: chart_svg(queue_chart(report)))
    title = f"packets of the busiest collectives, {report.seeds} seeds"
    yield Table(title, PACKET_HEADS, _call_rows(report), breaks=0)
    yield Notes(_hot_lines(report), "longest queue before")
    yield FactList("rules and what to set", _settings(report))
    yield Notes([line for call in report.calls for line in _tree_lines(call)][:8], "pauses")
    heads, rows = _losses(report)
    yield Table("a step gains by losses, by the share of packets lost", heads, rows)
    yield Notes([*report.notes, f"{text_of(report.events)} events, {report.engine}"], "packets")


def _call_rows(report: PacketReport) -> list[tuple[str, ...]]:
    return [
        (f"{c.axis} {c.op} x{c.ranks}", f"{c.slower:.2f}", f"{c.slower_worst:.2f}",
         *(_three(s * 1e6) for s in (c.transfer_p50_s, c.transfer_p99_s, c.transfer_p999_s)),
         _three(c.hottest.deepest_bytes / 1e3), f"{c.drops:,}", f"{c.marks:,}", f"{c.pauses:,}")
        for c in report.calls
    ]  # fmt: skip


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _settings(report: PacketReport) -> list[tuple[str, Cell]]:
    rules, said = report.rules, report.advice
    layer = {"pfc": "pauses (PFC)", "drop": "none: full buffers drop", "credits": "credits"}[rules.layer]
    found: list[tuple[str, Cell]] = [
        ("simulated", f"{layer}, {rules.payload} bytes a packet, {size_text(rules.buffer_bytes)} of buffer, "
                      f"{report.routing}{f' ({report.hashes} hashes)' if report.routing == 'ecmp' else ''}, "
                      f"{rules.control}, {rules.retransmit}"),
        ("step", f"+{time_text(max(report.step_growth_s, 0.0))} for these collectives, all of it waited for; "
                 f"{time_text(max(report.step_growth_most_s, 0.0))} if all of their bytes go as those followed"),
    ]  # fmt: skip
    if said is None:
        return found
    return [
        *found,
        ("headroom", f"{size_text(said.headroom_bytes)} a port ({said.reserved_share:.0%} of the buffer for 64); most "
                     f"used {size_text(max(c.headroom_used_bytes for c in report.calls))}"),
        ("pause", f"from {size_text(said.xoff_bytes)} a port, on again below {size_text(said.xon_bytes)}: safe when "
                  "all ports fill"),
        ("marks", f"from {size_text(said.mark_low_bytes)}, all packets from {size_text(said.mark_high_bytes)} on: "
                  "before any pause"),
        ("enough", "yes, nothing was dropped" if said.enough else "no: packets were dropped under the simulated rules"),
    ]  # fmt: skip


def _hot_lines(report: PacketReport) -> list[str]:
    return [f"{c.op} over {c.ranks}: {c.hottest.link}; {c.ways_used:,} of {c.ways_there:,} links above the leaves used"
            for c in report.calls]  # fmt: skip


def _tree_lines(call: PacketCall) -> list[str]:
    return [f"{edge.by} stopped {edge.paused}, {edge.times:,} times, first after {time_text(edge.first_s)}"
            for edge in call.pause_tree]  # fmt: skip


def _losses(report: PacketReport) -> tuple[list[str], list[tuple[str, ...]]]:
    rates = list(report.losses[0].step_s)
    rows = []
    for each in report.losses:
        money = each.usd_per_day or {}
        rows.append((each.retransmit, time_text(each.each_s), f"{each.tail_share:.2g}",
                     *(time_text(each.step_s[rate]) for rate in rates)))  # fmt: skip
        if money:
            rows.append(("  USD a day", "", "", *(f"{money[rate]:,.0f}" for rate in rates)))
    return [*LOSS_HEADS, *rates], rows
