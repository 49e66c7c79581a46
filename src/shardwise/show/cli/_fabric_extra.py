"""What-ifs, the requirement sheet and the search for the cheapest fabric, on a terminal and as parts of the page."""

from collections.abc import Sequence

from shardwise.fabric.requirement import THINNEST, Requirement
from shardwise.question.studies.fabric.budget import cheapest
from shardwise.question.studies.fabric.whatif import JOINT, WhatIfRow
from shardwise.report.charts import chart_svg
from shardwise.report.fabric_figures import budget_chart, bus_chart
from shardwise.report.fabric_page import html_list, html_table, size_text
from shardwise.report.fabric_report import FabricOption
from shardwise.show.cli._output import print_facts, print_gap, print_notes, print_table, text_of
from shardwise.spec.policy import AXES
from shardwise.units import time_text

Rows = list[tuple[str, ...]]
TIER_HEADS = ("tier", "has GB/s", "mean GB/s", "x thinner +1%", "+5%", "+10%", "needs GB/s")
WHAT_IF_HEADS = ("what if", "change", "collectives", "x", "step", "", "p95")
FABRIC_HEADS = ("rails", "policy", "Gb/s", "over", "NVLink", "USD/GPU", "ports", "MFU", "lost")
MOST_FABRICS = 16
PRICED = ("prices: optics at both ends of every cable, no servers, power or support; sources in JSON, others with "
          "--prices FILE.toml")  # fmt: skip


def what_if_rows(rows: Sequence[WhatIfRow]) -> Rows:
    return [(r.name, r.what, time_text(r.communication_s), f"{r.times:.2f}", time_text(r.step_s), f"{r.growth:+.1%}",
             time_text(r.step_p95_s) if r.step_p95_s else "") for r in rows]  # fmt: skip


def what_if_note(rows: Sequence[WhatIfRow]) -> str:
    loose = [r.name for r in rows if r.answered != JOINT]
    if not loose:
        return "steps by the joint loop; p95 over the seeds of a hash"
    return f"steps by the joint loop; {', '.join(loose)}: kinds priced alone, all that they gain counted as waited for"


def tier_rows(need: Requirement) -> Rows:
    return [
        (t.tier, f"{t.link_bytes_per_s / 1e9:,.0f}", text_of(t.mean_bytes_per_s / 1e9),
         *(_factor(f) for f in t.oversubscription.values()), text_of(t.needed_bytes_per_s / 1e9))
        for t in need.tiers
    ]  # fmt: skip


def _factor(value: float) -> str:
    return "any" if value >= THINNEST else f"{value:.2f}"


def need_facts(need: Requirement) -> list[tuple[str, str]]:
    budgets = [
        " / ".join(time_text(s) for s in each.values()) for each in (need.latency_budget_s, need.jitter_budget_s)
    ]
    facts = [
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


def benchmark_rows(need: Requirement) -> Rows:
    """One row per size, one column per collective worth testing."""
    if not need.benchmark:
        return []
    return [
        (size_text(need.benchmark[0].expected[i].bytes),
         *(f"{b.expected[i].low_bytes_per_s / 1e9:,.0f}-{b.expected[i].high_bytes_per_s / 1e9:,.0f}"
           for b in need.benchmark))
        for i in range(len(need.benchmark[0].expected))
    ]  # fmt: skip


def benchmark_heads(need: Requirement) -> list[str]:
    return ["size", *(f"{b.op} x{b.ranks}" for b in need.benchmark)]


def show_what_ifs(rows: Sequence[WhatIfRow]) -> None:
    print_gap()
    print_table("what if, each alone", WHAT_IF_HEADS, what_if_rows(rows), words=2)
    print_notes([what_if_note(rows)], title="answered")


def show_requirement(need: Requirement) -> None:
    print_gap()
    print_table("requirements of each tier", TIER_HEADS, tier_rows(need))
    print_gap()
    if not need.benchmark:
        return
    print_facts("budgets", need_facts(need))
    print_gap()
    print_table("bus bandwidth to expect, GB/s", benchmark_heads(need), benchmark_rows(need))
    print_notes([b.command for b in need.benchmark], title="test with")
    print_notes([f"{w.what} ({w.where}): {w.why}" for w in need.watch], title="watch")


def fabric_rows(rows: Sequence[FabricOption]) -> Rows:
    return [(c.rails, short_policy(c), f"{c.card_bytes_per_s * 8 / 1e9:,.0f}", f"{c.oversubscription:g}:1",
             f"{c.domain_gpus}", f"{c.usd_per_gpu:,.0f}", f"{c.ports_per_gpu:.2f}", f"{c.mfu:.1%}",
             f"{c.below_best:.1%}") for c in rows]  # fmt: skip


def short_policy(row: FabricOption) -> str:
    """Its degrees: 'tp 8 pp 4'."""
    degrees = {axis: getattr(row.policy, axis) for axis in AXES if axis != "dp"}
    return " ".join(f"{axis} {size}" for axis, size in degrees.items() if size > 1) or f"dp {row.policy.dp}"


def budget_words(rows: list[FabricOption], within: float) -> list[str]:
    chosen = cheapest(rows, within)
    if not chosen:
        return [f"no fabric tried stays within {within:.1%} of the best MFU"]
    found = [
        f"NVLink domain {c.domain_gpus}: {c.card_bytes_per_s * 8 / 1e9:,.0f} Gb/s NICs, {c.oversubscription:g}:1 "
        f"above the leaves, rails {c.rails}, {short_policy(c)}: {c.usd_per_gpu:,.0f} USD per GPU ({_bill(c)}), "
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


def show_budget(rows: list[FabricOption], within: float) -> None:
    print_gap()
    front = efficient(rows)
    print_table(
        f"fabrics that nothing cheaper beats, of {len(rows)} tried",
        FABRIC_HEADS,
        fabric_rows(front[:MOST_FABRICS]),
        words=2,
    )
    print_notes(budget_words(rows, within), title=f"cheapest within {within:.1%} of the best MFU")


def efficient(rows: list[FabricOption]) -> list[FabricOption]:
    """Cheapest first, each faster than all before it."""
    front: list[FabricOption] = []
    for each in rows:
        if not front or each.mfu > front[-1].mfu * (1 + 1e-4):
            front.append(each)
    return front


def sections(
    need: Requirement, rows: Sequence[WhatIfRow], fabrics: list[FabricOption], within: float
) -> list[tuple[str, str]]:
    """(title, HTML) for the page."""
    found = []
    if rows:
        found.append(("What if, each alone", html_table(WHAT_IF_HEADS, what_if_rows(rows), words=2)
                      + html_list([what_if_note(rows)])))  # fmt: skip
    sheet = html_table(TIER_HEADS, tier_rows(need))
    if need.benchmark:
        sheet += html_list(f"{name}: {value}" for name, value in need_facts(need))
        sheet += chart_svg(bus_chart(need.benchmark)) + html_table(benchmark_heads(need), benchmark_rows(need))
        sheet += html_list(b.command for b in need.benchmark)
        sheet += html_list(f"{w.what} ({w.where}): {w.why}" for w in need.watch)
    found.append(("Requirements of the fabric", sheet))
    if fabrics:
        figure = chart_svg(budget_chart(fabrics, cheapest(fabrics, within), within))
        words = html_list(budget_words(fabrics, within))
        table = html_table(FABRIC_HEADS, fabric_rows(efficient(fabrics)), words=2)
        found.append((f"Cheapest fabric within {within:.1%} of the best MFU", figure + words + table))
    return found
