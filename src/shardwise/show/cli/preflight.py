"""`shardwise preflight`: is everything ready before a job is scaled up; what a node's own tools say, item by item."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from shardwise.answers.preflight import items_answer, preflight_answer
from shardwise.programs.importers._file import read_text
from shardwise.programs.importers.infiniband import is_ibnetdiscover
from shardwise.programs.importers.run_files import read_run
from shardwise.run.preflight.check import checked, chosen
from shardwise.run.preflight.facts import RecordedNode, encoded, facts_of, nodes_from, recorded
from shardwise.run.preflight.finding import Probe, Subject
from shardwise.run.preflight.node import LiveNode, Node
from shardwise.run.preflight.planned import PlannedJob, PlannedTraining
from shardwise.run.preflight.storage import storage_rates
from shardwise.run.preflight.trial import trial_of
from shardwise.show.cli._facts_out import FactsOut
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._flags import DOES_NOT_FIT, on_of
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered, print_text, say_error
from shardwise.show.cli._plan_of import NO_PLAN_FLAGS, PlanFlags, cannot_run, question_of_words
from shardwise.show.cli._progress import spoken
from shardwise.show.cli._torch import needs_torch
from shardwise.show.cli._torchrun import rank_here
from shardwise.spec.load import cluster_of
from shardwise.units import seconds_of

MEASURING = Group("Measuring")
NODES = Group("Many nodes")
LONGEST_S = 3600.0
NOT_READY = 1
OF_CLUSTER = ("on", "nic")
"""flags that mean something without a model"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MeasureFlags:
    measure: Annotated[bool, Parameter(negative=(), group=MEASURING, help=(
        "Also measure: collectives, storage, GEMMs, and nccl-tests, ib_write_bw, dcgmi where installed."
    ))] = False  # fmt: skip
    storage: Annotated[Path | None, Parameter(group=MEASURING, help=(
        "With --measure: the folder of the checkpoints; one file is written there and deleted."
    ))] = None  # fmt: skip
    budget: Annotated[str, Parameter(group=MEASURING, help="Time for the collectives, such as '60 s'.")] = "60 s"
    trial: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative=(), group=MEASURING, help=(
        "Logs or traces of a few steps of the job."
    ))] = None  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NodeFlags:
    gather: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative=(), group=NODES, help=(
        "Look at nothing here: compare nodes by the facts in these files or folders."
    ))] = None  # fmt: skip
    out: Annotated[Path | None, Parameter(group=NODES, help=(
        "Write this node's facts: a file, or a folder that gets HOST.json."
    ))] = None  # fmt: skip
    facts: Annotated[bool, Parameter(negative=(), group=NODES, help="Print this node's facts as JSON, no table.")] = (
        False
    )
    topology: Annotated[Path | None, Parameter(group=NODES, help="ibnetdiscover's output, to find swapped cables.")] = (
        None
    )


def preflight(
    plan: Annotated[str | None, Parameter(help=(
        "A model with policy flags, or JSON of `plan` or `estimate`; not given: the node alone."
    ))] = None,
    /,
    flags: PlanFlags = NO_PLAN_FLAGS,
    *,
    measuring: MeasureFlags = MeasureFlags(),
    several: NodeFlags = NodeFlags(),
    only: Annotated[list[str] | None, Parameter(negative=(), help="Items or subjects to look at; may repeat.")] = None,
    skip: Annotated[list[str] | None, Parameter(negative=(), help="Items or subjects left out; may repeat.")] = None,
    list_: Annotated[bool, Parameter(name="--list", negative=(), help="List items and sources.")] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:  # fmt: skip
    """GPUs, links, network, host, software and the plan, each pass, warn, fail or not available, with the cure.

    Reads only; needs no root. Exit code 1 when an item fails.
    """
    items = chosen(_words(only), _words(skip))
    if list_:
        return answered(items_answer(items), json)
    rank = rank_here()
    seconds = _budget(measuring)
    job = _planned(plan, flags, json)
    if isinstance(job, int):
        return job
    out = None if several.out is None else FactsOut(several.out, overwrite)
    with spoken() as told:
        try:
            nodes = _nodes(job, items, measuring, several, seconds, told)
        except ConnectionError as problem:
            say_error(str(problem))
            return NOT_READY
        if rank:
            return 0  # the first rank tells
        rows = checked(nodes, job, items, told)
    if several.facts:
        for node in nodes:
            print_text(encoded(facts_of(node)).decode())
        return 0
    files = [] if out is None else out.write(nodes)
    return answered(preflight_answer([node.host for node in nodes], rows, job, files), json)


def _words(texts: Sequence[str] | None) -> list[str]:
    """Of a list that may repeat, and may be joined by commas."""
    return [word.strip() for text in texts or () for word in text.split(",") if word.strip()]


def _budget(measuring: MeasureFlags) -> float:
    seconds = seconds_of(measuring.budget, "budget")
    if not 1 <= seconds <= LONGEST_S:
        raise ValueError(f"budget: {measuring.budget!r} is out of range; write a time from '1 s' to '1 h'")
    if measuring.storage is not None and not measuring.measure:
        raise ValueError("storage: it is only looked at with --measure; write --measure too")
    if measuring.storage is not None and not measuring.storage.is_dir():
        raise ValueError(f"storage: {str(measuring.storage)!r} is not a folder; write the folder of the checkpoints")
    return seconds


def _planned(plan: str | None, flags: PlanFlags, json: bool) -> PlannedJob | int | None:
    """What is planned; the exit code where it cannot run."""
    if plan is None:
        stated = [each.name for each in fields(flags) if getattr(flags, each.name) != getattr(NO_PLAN_FLAGS, each.name)]
        lone = [name for name in stated if name not in OF_CLUSTER]
        if lone:
            raise ValueError(f"{lone[0].replace('_', '-')}: it says nothing without a model; write one, or a plan file")
        return PlannedJob(cluster_of(on_of(flags))) if flags.on else None
    ask, _ = question_of_words(plan, flags)
    if cannot_run(plan, flags, ask, json, "preflight"):
        return DOES_NOT_FIT
    return PlannedJob(ask.cluster, PlannedTraining(ask.case, ask.policy), list(ask.notes))


def _nodes(
    job: PlannedJob | None, items: list[tuple[Subject, Probe]], measuring: MeasureFlags, several: NodeFlags,
    seconds: float, told: Callable[[str], None],
) -> Sequence[LiveNode | RecordedNode]:  # fmt: skip
    given = _given(job, measuring, several)
    if several.gather:
        if measuring.measure:
            raise ValueError("gather: nothing is measured where facts are compared; write --measure on the nodes")
        found = nodes_from(several.gather)
        given(found[0])
        return found
    node = LiveNode()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        needs_torch("preflight")
        from shardwise.run.runtime.preflight.measure import facts_of_all

        told("waiting for the other ranks")
        everyone = recorded(facts_of_all(
            node, job, lambda each: checked([each], job, items), measure=measuring.measure,
            storage=measuring.storage, seconds=seconds,
        ))  # fmt: skip
        if everyone:
            given(everyone[0])
        return everyone
    if measuring.measure:
        told("measuring")
        _measure(node, measuring, seconds)
    given(node)
    return [node]


def _measure(node: LiveNode, measuring: MeasureFlags, seconds: float) -> None:
    """Of this node alone; without torch what needs none."""
    start = time.monotonic()
    if find_spec("torch") is not None:
        from shardwise.run.runtime.preflight.products import devices_here, product_facts

        node.measured.products = [product_facts(device) for device in devices_here()]
    if measuring.storage is not None:
        node.measured.storage = storage_rates(measuring.storage, seconds / 4)
    node.measured.seconds = time.monotonic() - start


def _given(job: PlannedJob | None, measuring: MeasureFlags, several: NodeFlags) -> Callable[[Node], None]:
    """Puts what the user brings, a trial run and the fabric's cables, beside what a node tells."""
    trial = trial_of(read_run(measuring.trial), job) if measuring.trial else None
    cables = ""
    if several.topology is not None:
        cables = read_text(several.topology, "topology")
        if not is_ibnetdiscover(cables):
            raise ValueError(f"topology: {several.topology.name} is not what ibnetdiscover prints; write its output")

    def put(node: Node) -> None:
        node.measured.trial, node.measured.ibnetdiscover = trial, cables

    return put
