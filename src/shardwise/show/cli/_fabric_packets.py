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
from shardwise.show.cli._options import within
from shardwise.show.cli._shown import RARE
from shardwise.spec.cluster import Cluster
from shardwise.units import bytes_of

CONTROLS = ("dcqcn", "none")


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
