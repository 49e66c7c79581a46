"""`shardwise fabric MODEL`: what a policy does to the network, link by link, and what it asks of the fabric."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.fabric import fabric_answer
from shardwise.fabric.broken import Fabric, slowed, without
from shardwise.fabric.graph import Graph
from shardwise.fabric.graph_file import graph_of
from shardwise.fabric.part_prices import part_prices
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring
from shardwise.fields import state_once
from shardwise.plugins.collectives import collective
from shardwise.question import PolicyQuestion
from shardwise.question.studies.fabric.budget import FabricQuestion, cheapest, checked, fabrics_of, ranked
from shardwise.question.studies.fabric.build import FabricStudy, fabric_report
from shardwise.question.studies.fabric.packets import PacketAsk, packet_report
from shardwise.question.studies.fabric.whatif import rows_of
from shardwise.registry import closest
from shardwise.report.charts import chart_svg
from shardwise.report.fabric_report import FabricOption
from shardwise.report.packet_figure import queue_chart
from shardwise.report.packet_report import PacketReport
from shardwise.show.cli._fabric_packets import PacketFlags
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._flags import DOES_NOT_FIT, Flags, asked, leave_out, on_of, refused
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import spoken, watched_all
from shardwise.show.cli._shown import RARE
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import AXES


@Parameter(name="*", show=RARE)
@dataclass(frozen=True, kw_only=True)
class WiringFlags:
    """What a cluster leaves open about its network."""

    rails: Annotated[str, Parameter(help="optimised, only (no spine joins rails) or none.")] = "optimised"
    cross_rail: Annotated[str, Parameter(help="Between rails: nvlink first (PXN, as NCCL does) or a spine.")] = ""
    routing: Annotated[str, Parameter(help="spray (adaptive) or ecmp (a hash for each connection).")] = "spray"
    connections: Annotated[int, Parameter(help="Connections per pair of GPUs, with ecmp.")] = 1
    seed: Annotated[int, Parameter(help="Seed of the hash.")] = 0
    hashes: Annotated[str, Parameter(help="With ecmp: distinct on every tier, the same on all, or paths in turn.")] = (
        "distinct"
    )
    graph: Annotated[Path | None, Parameter(help="A YAML file of links in place of the cluster's tree.")] = None
    fail: Annotated[list[str], Parameter(help="A link or switch that is down, by its name in `links`; may repeat.")] = (
        field(default_factory=list)
    )
    slow: Annotated[list[str], Parameter(help="A link at a share of its speed, NAME=0.25; may repeat.")] = field(
        default_factory=list
    )
    algorithm: Annotated[
        list[str],
        Parameter(help="Collective algorithm of a kind, such as dp=sharp or ep=hierarchical; may be repeated."),
    ] = field(default_factory=list)

    def wiring(self) -> Wiring:
        found = Wiring(rails=self.rails, cross_rail=self.cross_rail, routing=self.routing,
                       connections=self.connections, seed=self.seed, hashes=self.hashes)  # fmt: skip
        if found.routing == "spray" and found.hashes != "distinct":
            raise ValueError(f"hashes: {found.hashes!r} means nothing where packets are sprayed; add --routing ecmp")
        return found

    def broken(self, fabric: Fabric) -> Fabric:
        for text in self.slow:
            name, share = _halves(text, "slow", "'LINK=0.25'")
            try:
                value = float(share)
            except ValueError:
                raise ValueError(f"slow: {share!r} is not a share; write a number, as in 'LINK=0.25'") from None
            fabric = slowed(fabric, name, value)
        for name in self.fail:
            fabric = without(fabric, name)
        return fabric

    def named(self) -> dict[str, str]:
        """axis -> algorithm."""
        found: dict[str, str] = {}
        for text in self.algorithm:
            axis, name = _halves(text, "algorithm", "'dp=two_level'")
            if axis not in AXES:
                raise ValueError(f"algorithm: {axis!r} is not a kind of traffic; {closest(axis, list(AXES))}")
            state_once(found, axis, collective(name).name, "algorithm")
        return found


def _halves(text: str, flag: str, example: str) -> tuple[str, str]:
    name, sign, value = text.rpartition("=")
    if not sign or not name:
        raise ValueError(f"{flag}: {text!r}; write {example}")
    return name, value


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FabricQuestions:
    """What else is asked about the step."""

    what_if: Annotated[bool, Parameter(help="Corrections one by one: PFC, hashes, slow and failed links, ...")] = False
    sheet: Annotated[bool, Parameter(help="The requirement sheet; always in JSON and on the page.")] = False
    within: Annotated[float | None, Parameter(help="Cheapest fabric within this many percent of the best MFU.")] = None
    keep_policy: Annotated[bool, Parameter(help="With --within: the same policy on every fabric.")] = False
    prices: Annotated[
        Path | None, Parameter(help="With --within: a TOML file of prices in place of the catalog's.")
    ] = None

    def __post_init__(self) -> None:
        if self.within is not None and not 0 <= self.within <= 100:
            raise ValueError(f"within: {self.within:g} is out of range; write a percentage from 0 to 100")


def step(
    model: ModelName,
    /,
    flags: Flags,
    *,
    wires: WiringFlags = WiringFlags(),
    questions: FabricQuestions = FabricQuestions(),
    packet_flags: PacketFlags = PacketFlags(),  # noqa: B008  frozen
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """Traffic matrix, load of every link, bottleneck, burst and phases of a step; placements priced."""
    wiring = wires.wiring()
    wires.named()
    picture = figure_file(packet_flags.figure, overwrite)
    leave_out(
        "fabric", "follows a step with the mean gradient over full sequences", flags, "sync", "lengths", "packing"
    )
    ask = asked(model, flags)
    if refused(model, on_of(flags), ask, json):
        return DOES_NOT_FIT
    if packet_flags.packets:
        packet_flags.rules(ask.cluster)
    fabric = wires.broken(_graph(wires, wiring, ask) or tree_of(ask.cluster, wiring))
    with spoken() as progress:
        studied = fabric_report(ask.case, ask.policy, wiring=wiring, fabric=fabric, named=wires.named(), told=progress)
    budgeted = questions.within is not None
    answer = fabric_answer(
        ask, studied, what_if=list(watched_all(rows_of(studied), "what-ifs")) if questions.what_if else [],
        fabrics=_fabrics(ask, questions) if budgeted else [], within=(questions.within or 0.0) / 100.0,
        price_sources=part_prices(questions.prices).sources if budgeted else (),
        packets=_packets(studied, ask.cluster, packet_flags), sheet=questions.sheet,
    )  # fmt: skip
    if picture is not None and answer.packets is not None:
        picture.write(chart_svg(queue_chart(answer.packets)).encode())
    return answered(answer, json)


def _packets(studied: FabricStudy, cluster: Cluster, flags: PacketFlags) -> PacketReport | None:
    if not flags.packets:
        return None
    with spoken() as told:
        ask = PacketAsk(flags.suited(cluster, studied.load), flags.draws, told)
        return packet_report(studied.load, cluster, ask, studied.report.step_s)


def _fabrics(ask: PolicyQuestion, questions: FabricQuestions) -> list[FabricOption]:
    if ask.policy.gpus <= ask.cluster.levels[0].degree:
        raise ValueError(f"within: {ask.cluster.name} has no network to choose; write a cluster of several nodes")
    case = FabricQuestion(ask.case, ask.policy, part_prices(questions.prices), questions.keep_policy)
    rows = ranked(list(watched_all(fabrics_of(case), "fabrics")))
    best = cheapest(rows, (questions.within or 0.0) / 100.0)
    return [checked(case, each) if each in best else each for each in rows]


def _graph(wires: WiringFlags, wiring: Wiring, ask: PolicyQuestion) -> Graph | None:
    if wires.graph is None:
        return None
    graph = graph_of(wires.graph, wiring)
    if graph.gpus < ask.policy.gpus:
        raise ValueError(f"graph: {graph.name} has {graph.gpus:,} GPUs, the policy needs {ask.policy.gpus:,}; add GPUs")
    return graph
