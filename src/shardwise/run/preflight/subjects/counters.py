"""Counters of the cards: what was dropped, sent again, paused or marked, since the measuring began."""

from collections.abc import Callable, Mapping

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.limits import limit
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import counters_of

LOST = (
    "port_xmit_discards",
    "port_rcv_errors",
    "rx_discards_phy",
    "tx_discards_phy",
    "excessive_buffer_overrun_errors",
)
LOST_LOSSLESS = "buf_discard"
REPEATED = ("packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans", "symbol_error",
            "link_error_recovery", "local_link_integrity_errors", "out_of_buffer", "rx_out_of_buffer")  # fmt: skip
"""out_of_sequence is none of them: adaptive routing makes it normal"""
SINCE_BOOT = "since the driver was loaded"


def grown(node: Node) -> tuple[dict[str, int], float] | None:
    """Of each counter what it grew by while measuring, and the seconds of it; None where nothing was measured."""
    window = node.measured.counters
    if window is None:
        return None
    return {
        name: value - window.before[name] for name, value in window.after.items() if name in window.before
    }, window.seconds


def drops(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    moved = grown(node)
    found = counters_of(node) if moved is None else moved[0]
    if not found:
        return unknown("no NIC counts anything")
    lossless = f"prio{limit('network.lossless_priority'):.0f}_{LOST_LOSSLESS}"
    lost = _over_zero(found, lambda name: name in LOST or name.endswith(lossless))
    again = _over_zero(found, lambda name: name in REPEATED)
    if moved is not None:
        if lost:
            return failed(f"while measuring: {few(lost)}", "find the hop that drops: buffers, PFC, MTU, a bad cable")
        if again:
            return warned(f"while measuring: {few(again)}", "packets were sent again: look at cable and congestion")
        return passed(f"none of {len(found)} counters moved in {moved[1]:.0f} s of traffic")
    if lost or again:
        return warned(
            f"{few([*lost, *again])} {SINCE_BOOT}", "old counts prove nothing: write --measure for what grows"
        )
    return passed(f"{len(found)} counters, none lost or repeated {SINCE_BOOT}")


def _over_zero(found: Mapping[str, int], which: Callable[[str], bool]) -> list[str]:
    return [f"{name} {value:,}" for name, value in found.items() if value > 0 and which(name.partition("/")[2])]


def pauses(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    moved = grown(node)
    found = counters_of(node) if moved is None else moved[0]
    paused = {name: value for name, value in found.items() if "_pause" in name}
    if not paused:
        return unknown("no NIC reports pauses (RoCE: ethtool -S)")
    wrong = [name for name, value in paused.items() if value and "_prio0_pause" in name]
    if wrong:
        return warned(f"priority 0 pauses: {few(wrong)}", "mark RoCE packets and pause their priority only")
    if moved is None:
        some = [name for name, value in paused.items() if value]
        told = f"{len(some)} of {len(paused)} counters above 0 {SINCE_BOOT}" if some else f"none {SINCE_BOOT}"
        return passed(told)
    longest = max(((value / (moved[1] * 1e6), name) for name, value in paused.items() if name.endswith("_duration")),
                  default=(0.0, ""))  # fmt: skip
    share, name = longest
    told = f"{name} {share:.1%} of the time" if name else f"{sum(paused.values()):,} frames"
    cure = "rx: a switch holds this host back, find the slow receiver; tx: this host cannot drain, look at its PCIe"
    if share > limit("network.pause_fail"):
        return failed(told, cure)
    return warned(told, cure) if share > limit("network.pause_warn") else passed(told)


def marks(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    moved = grown(node)
    if moved is None:
        return unknown("not measured", "write --measure")
    kinds = {kind: sum(value for name, value in moved[0].items() if name.endswith(f"/{kind}"))
             for kind in ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")}  # fmt: skip
    if not any(name.endswith("np_cnp_sent") for name in moved[0]):
        return unknown("no NIC counts marks (RoCE only)")
    marked, sent, handled = kinds.values()
    told = f"{marked:,} marked, {sent:,} notices sent, {handled:,} heeded"
    if marked and not sent:
        return failed(f"{told}: marks are not answered", "switch on roce_np; look at the notices' priority (CNP)")
    return passed(told)


SUBJECT = Subject("counters", 40, (
    Probe("drops", "packets lost or sent again", "counters, hw_counters, ethtool -S", drops),
    Probe("pauses", "time a port stood still (PFC)", "ethtool -S rx/tx_prioN_pause*", pauses),
    Probe("marks", "ECN marks and their answer", "hw_counters/np_*, rp_*", marks, needs="measure"),
))  # fmt: skip
