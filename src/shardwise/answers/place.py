"""`place`: which free nodes a policy takes, in which order, and what that does to the step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from shardwise.answers.answer import Answer, Cell, FactList, Part, Table, Text
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.fabric.hostlist import hostlist
from shardwise.fabric.site import Site
from shardwise.programs.exporters.node_files import PlacedJob, slurm_lines, slurm_wish
from shardwise.question import PolicyQuestion
from shardwise.question.studies.place import AxisGroups, NodeChoice, NodeOrder
from shardwise.report.terminal import policy_code
from shardwise.report.tier import FLOW_LEVEL
from shardwise.spec.policy import Policy
from shardwise.step.estimate.band import NO_BAND, band_of
from shardwise.units import time_text

AXIS_WORDS = {"tp": "tensor", "cp": "context", "ep": "expert", "dp": "data", "pp": "pipeline"}


class PlacedOrder(Struct, frozen=True, kw_only=True):
    name: str
    step_s: float
    communication_s: float
    groups: Sequence[AxisGroups]


class PlaceAnswer(Answer, frozen=True, kw_only=True):
    origin_first: ClassVar[bool] = True

    tier: str
    model: str
    cluster: str
    gpus: int
    policy: Policy
    topology: str
    nodes_known: int
    nodes_free: int
    levels: Mapping[str, int]
    """level -> blocks"""
    error_range: tuple[float, float] | None
    error_basis: str
    chosen: str
    nodes: Sequence[str]
    node_gpus: int
    step_s: float
    listed_step_s: float
    blocks_used: Mapping[str, int]
    run_nodes: int
    orders: Sequence[PlacedOrder]
    slurm: Sequence[str]
    files: Mapping[str, str]
    """name -> text, or the path where a folder was named"""
    folder: str | None
    policy_origin: str

    def parts(self) -> Iterator[Part]:
        chosen = next(order for order in self.orders if order.name == self.chosen)
        listed = self.orders[0]
        took = f"{time_text(chosen.step_s)}, nodes {chosen.name}"
        if chosen is not listed:
            saved = chosen.step_s / listed.step_s - 1.0
            took += f"; {time_text(listed.step_s)} as they are listed ({saved:+.1%})"
        used = ", ".join(f"{count} {name}" for name, count in self.blocks_used.items())
        yield FactList(f"{self.model} on {self.cluster}, {self.topology} of {self.nodes_known:,} nodes", [
            ("policy", policy_code(self.policy)), ("nodes", f"{len(self.nodes):,} of {self.nodes_free:,} free: {used}"),
            ("step", took), ("error", self.error_basis), ("why", _kept(chosen, listed)),
            ("hosts", hostlist(self.nodes)), ("slurm", self.slurm[-1].removeprefix("#SBATCH ")),
        ])  # fmt: skip
        rows = [(o.name, f"{o.step_s:.4g}", f"{o.communication_s:.4g}", *_inside(o)) for o in self.orders]
        heads = [f"{group.axis} groups in one {level}" for group in chosen.groups for level in list(group.inside)[:1]]
        yield Table("orders tried", ["nodes", "step s", "network s", *heads], rows, bars=("step s", "network s"))
        if self.folder is not None:
            others = "place.sbatch, kueue.yaml, volcano.yaml, ray.json"
            yield Text(f"files: {self.folder}/hostfile (in the order of the ranks), {others}")


ANSWERS = (PlaceAnswer, CannotRunAnswer)


def place_answer(
    ask: PolicyQuestion, site: Site, free: int, found: NodeChoice, job: PlacedJob, files: Mapping[str, str],
    folder: str | None,
) -> PlaceAnswer:  # fmt: skip
    """`free`: so many nodes."""
    band = band_of(ask.case)
    return PlaceAnswer(
        tier=FLOW_LEVEL, model=ask.model.name, cluster=ask.cluster.name, gpus=ask.policy.gpus, policy=ask.policy,
        topology=site.form, nodes_known=len(site.nodes), nodes_free=free,
        levels={level.name: len(level.names) for level in site.levels},
        error_range=None if band is None else (band.low, band.high),
        error_basis=NO_BAND if band is None else str(band), chosen=found.chosen.name, nodes=found.chosen.nodes,
        node_gpus=found.node_gpus, step_s=found.chosen.step_s, listed_step_s=found.listed.step_s,
        blocks_used=found.blocks_used, run_nodes=found.run,
        orders=[PlacedOrder(name=order.name, step_s=order.step_s, communication_s=order.communication_s,
                            groups=order.groups) for order in found.orders],
        slurm=[*slurm_lines(job), f"#SBATCH {slurm_wish(job)}"], files=files, folder=folder, policy_origin=ask.origin,
        notes=[*ask.notes, *found.notes, *_assumed(found.orders)],
    )  # fmt: skip


def _assumed(orders: Sequence[NodeOrder]) -> list[str]:
    return [
        "steps at flow level on the site's own switches; the bandwidth of each level is the cluster's",
        "nothing else is on the fabric; equal paths are shared evenly",
        f"chosen among {', '.join(order.name for order in orders)} by the step",
    ]


def _inside(order: PlacedOrder) -> list[str]:
    return [f"{group.inside[level]} of {group.groups}" for group in order.groups for level in list(group.inside)[:1]]


def _kept(chosen: PlacedOrder, listed: PlacedOrder) -> Cell:
    """One sentence: which groups stay together that would not."""
    before = {group.axis: group for group in listed.groups}
    gained = [group for group in chosen.groups if _more(group, before[group.axis])]
    if not gained:
        return None
    best = max(gained, key=lambda group: _more(group, before[group.axis]))
    level = next(iter(best.inside))
    together = "all" if best.inside[level] == best.groups else f"{best.inside[level]} of {best.groups}"
    return (
        f"{together} {AXIS_WORDS[best.axis]} groups stay in one {level}: {time_text(chosen.step_s)} a step; "
        f"{before[best.axis].inside[level]} of {best.groups} as listed: {time_text(listed.step_s)}"
    )


def _more(group: AxisGroups, before: AxisGroups) -> float:
    level = next(iter(group.inside), None)
    return 0.0 if level is None else (group.inside[level] - before.inside[level]) / group.groups
