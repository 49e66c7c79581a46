"""`shardwise fabric --packets`: its options, and what it found on a terminal and as part of the page."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.fabric.packet_fabric import network_of, packet_fabric
from shardwise.fabric.packet_rules import fitted, usual_rules
from shardwise.fabric.packets.ask import LAYERS, MTUS, RETRANSMITS, Rules
from shardwise.fabric.requirement import card_rate
from shardwise.fabric.step import StepLoad
from shardwise.question.studies.fabric.packets import NOTHING_OUTSIDE
from shardwise.registry import closest
from shardwise.report.charts import chart_svg
from shardwise.report.fabric_page import html_list, html_table, size_text
from shardwise.report.packet_figure import queue_chart
from shardwise.report.packet_report import PacketCall, PacketReport
from shardwise.show.cli._options import within
from shardwise.show.cli._output import print_facts, print_gap, print_notes, print_table, text_of
from shardwise.show.cli._shown import RARE
from shardwise.spec.cluster import Cluster
from shardwise.units import bytes_of, time_text

CONTROLS = ("dcqcn", "none")
HEADS = ("collective", "x rates", "worst", "p50 us", "p99", "p99.9", "kB", "lost", "marks", "pauses")
LOSS_HEADS = ("sent again", "a loss", "at the end")


@Parameter(name="*", show=RARE)
@dataclass(frozen=True, kw_only=True)
class PacketFlags:
    """How switches and cards treat packets, with --packets."""

    packets: Annotated[
        bool, Parameter(help="Follow the busiest collectives packet by packet: queues, pauses, tails.")
    ] = False
    mtu: Annotated[int, Parameter(help="Bytes of data in a packet: 1500, 4096 or 9000.")] = 4096
    flow_control: Annotated[
        str, Parameter(help="pfc, drop or credits (InfiniBand); unset: as the cluster's network.")
    ] = ""
    buffer: Annotated[str, Parameter(help="Shared by the ports of a switch, as in '64 MB'.")] = "64 MB"
    threshold: Annotated[
        float, Parameter(help="A port may hold this many times its free buffer; 0: all of it."), within(0, 64)
    ] = 0.125
    xoff: Annotated[
        str, Parameter(help="PFC: bytes of one port's input that pause its sender; unset: by threshold.")
    ] = ""
    xon: Annotated[str, Parameter(help="PFC: bytes from which it may go on, below --xoff.")] = ""
    headroom: Annotated[str, Parameter(help="PFC: room for bytes still arriving; unset: what the cables need.")] = ""
    marks: Annotated[
        str, Parameter(help="ECN: 'LOW,HIGH' as '500 kB,2 MB', or none; unset: from 10 us of queue on.")
    ] = ""
    control: Annotated[str, Parameter(help="How NICs react to marks: dcqcn or none.")] = "dcqcn"
    retransmit: Annotated[str, Parameter(help="selective or go-back-n.")] = "selective"
    lost: Annotated[float, Parameter(help="Share of packets that each link loses, as 1e-6.")] = 0.0
    draws: Annotated[int, Parameter(help="Seeds that each collective is run with, 1 to 64."), within(1, 64)] = 5
    figure: Annotated[Path | None, Parameter(help="Write the queue before the hottest port over time: FILE.svg.")] = (
        None
    )

    def __post_init__(self) -> None:
        if not self.packets:
            stated = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
            if stated:
                raise ValueError(
                    f"{stated[0].replace('_', '-')}: is about packets, which nobody asked for; add --packets"
                )
        if self.figure is not None and self.figure.suffix != ".svg":
            raise ValueError(f"figure: {self.figure.name!r}; write a name that ends in .svg")
        if self.mtu not in MTUS:
            raise ValueError(f"mtu: {self.mtu} is unknown; write {', '.join(map(str, MTUS[:-1]))} or {MTUS[-1]}")
        for name, known in (("flow_control", ("", *LAYERS)), ("control", CONTROLS), ("retransmit", RETRANSMITS)):
            value = getattr(self, name)
            if value not in known:
                shown = [each for each in known if each]
                raise ValueError(f"{name.replace('_', '-')}: {value!r} is unknown; {closest(value, shown)}")

    def rules(self, cluster: Cluster) -> Rules:
        """As far as the user says; see `suited`."""
        layer = self.flow_control or usual_rules(cluster).layer
        if cluster.has_credits and layer != "credits":
            raise ValueError(
                f"flow-control: {layer} is Ethernet's, {cluster.name} is {cluster.link_layer}; leave it out"
            )
        if layer == "credits":
            for name in ("xoff", "xon", "headroom", "marks"):
                if getattr(self, name):
                    raise ValueError(f"{name}: is Ethernet's; a fabric with credits has none, leave it out")
        low, high = self._marks()
        xoff, xon = _size(self.xoff, "xoff"), _size(self.xon, "xon")
        if xon and not 0 < xon < xoff:
            raise ValueError(f"xon: {self.xon!r} is not below xoff; write both, as --xoff '500 kB' --xon '480 kB'")
        packet = self.mtu + Rules().header
        rules = Rules(
            payload=self.mtu, layer=layer, buffer_bytes=_size(self.buffer, "buffer"), threshold=self.threshold,
            xoff_bytes=xoff, xon_gap_bytes=xoff - xon if xon else 2.0 * packet,
            headroom_bytes=_size(self.headroom, "headroom"), mark_low_bytes=low, mark_high_bytes=high,
            control=self.control, retransmit=self.retransmit, loss=self.lost,
        )  # fmt: skip
        if rules.buffer_bytes < 4 * packet:
            raise ValueError(f"buffer: {self.buffer!r} holds no packets; write '100 kB' or more")
        return rules

    def suited(self, cluster: Cluster, load: StepLoad) -> Rules:
        """With what fits the fabric where nothing is said."""
        if not (load.prices.fabric.links.level > 0).any():
            raise ValueError(NOTHING_OUTSIDE)
        found = fitted(self.rules(cluster), network_of(packet_fabric(load.prices.fabric, 0)), card_rate(load))
        return found if self.marks != "none" else replace(found, mark_low_bytes=0.0, mark_high_bytes=0.0)

    def _marks(self) -> tuple[float, float]:
        if self.marks in ("", "none"):
            return 0.0, 0.0
        low, comma, high = self.marks.partition(",")
        found = _size(low, "marks"), _size(high, "marks")
        if not comma or not 0 < found[0] <= found[1]:
            raise ValueError(f"marks: {self.marks!r}; write two sizes, the lower first, as '500 kB,2 MB', or none")
        return found


def _size(text: str, what: str) -> float:
    return bytes_of(text, what) if text.strip() else 0.0


def call_rows(report: PacketReport) -> list[tuple[str, ...]]:
    return [
        (f"{c.axis} {c.op} x{c.ranks}", f"{c.slower:.2f}", f"{c.slower_worst:.2f}",
         *(_three(s * 1e6) for s in (c.transfer_p50_s, c.transfer_p99_s, c.transfer_p999_s)),
         _three(c.hottest.deepest_bytes / 1e3), f"{c.drops:,}", f"{c.marks:,}", f"{c.pauses:,}")
        for c in report.calls
    ]  # fmt: skip


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def setting_facts(report: PacketReport) -> list[tuple[str, str]]:
    rules, said = report.rules, report.advice
    layer = {"pfc": "pauses (PFC)", "drop": "none: full buffers drop", "credits": "credits"}[rules.layer]
    found = [
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


def hot_lines(report: PacketReport) -> list[str]:
    return [f"{c.op} over {c.ranks}: {c.hottest.link}; {c.ways_used:,} of {c.ways_there:,} links above the leaves used"
            for c in report.calls]  # fmt: skip


def tree_lines(call: PacketCall) -> list[str]:
    return [f"{edge.by} stopped {edge.paused}, {edge.times:,} times, first after {time_text(edge.first_s)}"
            for edge in call.pause_tree]  # fmt: skip


def loss_rows(report: PacketReport) -> tuple[list[str], list[tuple[str, ...]]]:
    rates = list(report.losses[0].step_s)
    rows = []
    for each in report.losses:
        money = each.usd_per_day or {}
        rows.append((each.retransmit, time_text(each.each_s), f"{each.tail_share:.2g}",
                     *(time_text(each.step_s[rate]) for rate in rates)))  # fmt: skip
        if money:
            rows.append(("  USD a day", "", "", *(f"{money[rate]:,.0f}" for rate in rates)))
    return [*LOSS_HEADS, *rates], rows


def show_packets(report: PacketReport) -> None:
    print_gap()
    print_table(f"packets of the busiest collectives, {report.seeds} seeds", HEADS, call_rows(report), breaks=0)
    print_notes(hot_lines(report), title="longest queue before")
    print_gap()
    print_facts("rules and what to set", setting_facts(report))
    lines = [line for call in report.calls for line in tree_lines(call)]
    if lines:
        print_notes(lines[:8], title="pauses")
    heads, rows = loss_rows(report)
    print_gap()
    print_table("a step gains by losses, by the share of packets lost", heads, rows)
    print_notes([*report.notes, f"{text_of(report.events)} events, {report.engine}"], title="packets")


def packet_section(report: PacketReport) -> tuple[str, str]:
    heads, rows = loss_rows(report)
    body = chart_svg(queue_chart(report)) + html_table(HEADS, call_rows(report)) + html_list(hot_lines(report))
    body += html_list(f"{name}: {value}" for name, value in setting_facts(report))
    body += html_list(line for call in report.calls for line in tree_lines(call))
    return "Packets of the busiest collectives", body + html_table(heads, rows) + html_list(report.notes)
