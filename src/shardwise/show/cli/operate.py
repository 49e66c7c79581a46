"""`shardwise operate`: a run as it really goes, with failures, saves and restarts."""

from dataclasses import dataclass, replace
from typing import Annotated

from cyclopts import Group, Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers._assumed import assumptions_of
from shardwise.answers._budget import checked_rent
from shardwise.answers.operate import OperateQuestion, operate_answer
from shardwise.plan import Candidate
from shardwise.question import Question
from shardwise.question.job import batches_near, usual_training
from shardwise.question.studies.parts import parts_of
from shardwise.show.cli._flags import Flags, asked_openly, leave_out, on_of
from shardwise.show.cli._groups import CLUSTER
from shardwise.show.cli._left import best_left
from shardwise.show.cli._options import Json, ModelName, within
from shardwise.show.cli._output import answered
from shardwise.spec.policy import Policy
from shardwise.spec.sizes import sizes_of
from shardwise.step.operate.assumed import DETECTION, KINDS, Conditions, nodes_of
from shardwise.step.operate.failures import rates_of
from shardwise.step.operate.run import Operation
from shardwise.step.operate.sampled import Sampling
from shardwise.units import rate_of, seconds_of

FAILURES = Group("Failures")
MOST_RUNS = 100_000


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FailureFlags:
    detect: Annotated[str, Parameter(group=FAILURES, help=(
        "Until a failure is noticed: timeout (10 min), inspected (by component), or a time such as '30 s'."
    ))] = DETECTION[0]  # fmt: skip
    restart: Annotated[str | None, Parameter(group=FAILURES, help=(
        "From new machines to the first useful step, such as '5 min'; default: groups, load and first steps."
    ))] = None  # fmt: skip
    standby: Annotated[bool, Parameter(group=FAILURES, help="Warm machines wait; else the job is queued again.")] = (
        False
    )
    spares: Annotated[int | None, Parameter(group=FAILURES, help=(
        "Nodes kept ready, drawn run by run; default: there is always one."
    ))] = None  # fmt: skip
    repair: Annotated[str | None, Parameter(group=FAILURES, help="Until a failed node is back; default: '3 d'.")] = None
    shape: Annotated[float, Parameter(group=FAILURES, help=(
        "Weibull shape of the times between failures: 1 has no memory, below 1 they come in clusters."
    )), within(0.2, 5)] = 1.0  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SaveFlags:
    save: Annotated[str, Parameter(group=FAILURES, help=f"How it saves: {', '.join(KINDS)}.")] = "async"
    interval: Annotated[str | None, Parameter(group=FAILURES, help=(
        "Work between two saves, such as '30 min'; default: the best."
    ))] = None  # fmt: skip
    storage: Annotated[str | None, Parameter(group=FAILURES, help=(
        "Rate at which the job can write, such as '100 GB/s'; default: 1.2 GB/s a node, at most 95."
    ))] = None  # fmt: skip
    read: Annotated[str | None, Parameter(group=FAILURES, help=(
        "Rate at which the job can read, such as '40 GB/s'; default: 1.2 GB/s a node, at most 38."
    ))] = None  # fmt: skip


def operate(
    model: ModelName,
    /,
    flags: Flags,
    *,
    step: Annotated[
        str | None, Parameter(help="Time of a step you measured; default: the recommended policy's.")
    ] = None,
    rent: Annotated[
        float | None, Parameter(group=CLUSTER, help="USD per GPU hour, instead of published rents.")
    ] = None,
    failing: FailureFlags = FailureFlags(),
    saving: SaveFlags = SaveFlags(),
    runs: Annotated[int, Parameter(help="Runs drawn at random for the spread."), within(1, MOST_RUNS)] = 1000,
    seed: Annotated[int, Parameter(help="Seed of the draws."), within(0)] = 0,
    json: Json = False,
) -> int:
    """A run with failures: days with their spread, useful share, restarts, dollars, and improvements."""
    leave_out("operate", "prices steps with the mean gradient over full sequences", flags, "sync", "lengths", "packing")
    case = asked_openly(model, flags.on, flags)
    asked_batch = case.job.global_batch
    cluster, notes, on = case.cluster, list(case.notes), on_of(flags)
    sampling = _sampling(failing, runs, seed, nodes_of(cluster))
    conditions = _conditions(failing, saving)
    rates = rates_of(case.job.failures, cluster.gpus)
    if saving.save not in KINDS:
        raise ValueError(f"save: {saving.save!r} is unknown; write {', '.join(KINDS)}")
    usual, words = usual_training(case.model)
    trained = case.job.tokens or usual
    if not case.job.tokens:
        notes.insert(0, f"--tokens not given: {words} = {trained:,.4g} assumed")
    case, found = _recommended(case, moved=flags.global_batch is None)
    if case.job.global_batch != asked_batch:
        notes.append(f"global batch {case.job.global_batch:,} sequences, as `size` takes, so that it divides")
    if found is None and step is None:
        raise ValueError(
            f"on: no policy for {case.model.name} fits {on}; 'shardwise plan' says why, --step takes a measured step"
        )
    policy = Policy() if found is None else found.policy
    step_s = _time("step", step) if step is not None else found.to_loss_s if found is not None else 0.0
    work_s = trained / case.job.step_tokens * step_s
    run = Operation(
        model=case.on(cluster).model, job=case.job, cluster=cluster, step_s=step_s, work_s=work_s, rates=rates,
        kind=saving.save, conditions=conditions,
        interval_s=None if saving.interval is None else _time("interval", saving.interval),
        replicas=1 if policy.zero == 3 else policy.dp,
    )  # fmt: skip
    if run.interval_s is not None and run.interval_s < run.saves.lands_s:
        raise ValueError(
            f"interval: {saving.interval!r} is shorter than the {run.saves.lands_s:,.4g} s a save takes to land; write "
            "a longer one, or a faster --storage"
        )
    ask = OperateQuestion(
        run=run, tokens=trained, policy=policy if found is not None else None, measured_step=step is not None,
        step_range=None if step is not None else parts_of(case.on(cluster), [policy])[0].error_range,
        sampling=sampling, rent=checked_rent(rent),
        left=None if found is None else _left(case, on, run, found),
    )  # fmt: skip
    if found is not None and step is None:
        notes += map(str, assumptions_of(case, case.on(cluster), policy))
    return answered(operate_answer(ask, notes), json)


def _recommended(case: Question, moved: bool) -> tuple[Question, Candidate | None]:
    """The policy to take, with the batch as stated, or where it may move near it if that is faster, as in `size`."""
    batches = batches_near(case.job.global_batch, case.cluster.gpus) if moved else (case.job.global_batch,)
    cases = [replace(case, job=with_fields(case.job, global_batch=batch)) for batch in batches]
    ranked = [(each, each.ranked(each.cluster).recommended) for each in cases]
    return max(ranked, key=lambda pair: pair[1].tokens_per_s_per_gpu if pair[1] else 0.0)


def _left(case: Question, on: str, run: Operation, found: Candidate) -> float | None:
    """Of the speed on all nodes, what the best policy keeps without those that are away; None where none is left."""
    cluster, sizes = run.cluster, sizes_of(on)
    fewer_nodes = nodes_of(cluster) - max(round(run.nodes_away), 1)
    if fewer_nodes < 1:
        return None
    fewer = sizes.at(fewer_nodes * cluster.node_size)
    best = case.ranked(fewer).recommended
    if best is None:
        left = best_left(case, sizes, fewer)
        best = None if left is None else left.case.ranked(left.cluster).recommended
        fewer = fewer if left is None else left.cluster
    if best is None:
        return None
    return best.tokens_per_s_per_gpu * fewer.gpus / (found.tokens_per_s_per_gpu * cluster.gpus)


def _conditions(failing: FailureFlags, saving: SaveFlags) -> Conditions:
    named = failing.detect in DETECTION
    if not named and not failing.detect[:1].isdigit():
        raise ValueError(
            f"detect: {failing.detect!r} is unknown; write {', '.join(DETECTION)} or a time such as '30 s'"
        )
    return Conditions(
        detect=failing.detect if named else DETECTION[0],
        detect_s=None if named else _time("detect", failing.detect, least=0.0),
        standby=failing.standby,
        repair_s=None if failing.repair is None else _time("repair", failing.repair, least=0.0),
        write_bytes_per_s=None if saving.storage is None else _rate("storage", saving.storage),
        read_bytes_per_s=None if saving.read is None else _rate("read", saving.read),
        restart_s=None if failing.restart is None else _time("restart", failing.restart, least=0.0),
    )


def _sampling(failing: FailureFlags, runs: int, seed: int, nodes: int) -> Sampling:
    if failing.spares is not None and not 0 <= failing.spares <= max(nodes, 1000):
        raise ValueError(
            f"spares: {failing.spares} is out of range; write a whole number from 0 to {max(nodes, 1000):,}"
        )
    return Sampling(runs=runs, seed=seed, shape=failing.shape, spares=failing.spares)


def _time(what: str, text: str, least: float = 1e-6) -> float:
    seconds = seconds_of(text, what)
    if not least <= seconds < 1e12:
        raise ValueError(f"{what}: {text!r} is out of range; write a time such as '30 s'")
    return seconds


def _rate(what: str, text: str) -> float:
    rate = rate_of(text, what)
    if rate <= 0:
        raise ValueError(f"{what}: {text!r} is out of range; write a rate above 0, such as '40 GB/s'")
    return rate
