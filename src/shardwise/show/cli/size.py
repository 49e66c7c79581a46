"""`shardwise size`: how many GPUs and how long for a number of tokens; --chinchilla: what a budget should train."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers._budget import Budget, checked_rent, usd_of
from shardwise.answers._sizes import SizeQuestion, most_gpus
from shardwise.answers.size import chinchilla_answer, mfu_size_answer, size_answer
from shardwise.question.job import DEFAULT_PRECISION, usual_training
from shardwise.question.studies.money import failures_line, power_line, price_line
from shardwise.show.cli._chinchilla import work_of
from shardwise.show.cli._flags import JobFlags, asked_of_sizes, leave_out, on_of
from shardwise.show.cli._groups import CLUSTER
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._smallest import SizesTried, sizes_tried
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import precision_of
from shardwise.spec.sizes import sizes_of
from shardwise.step.estimate.mfu import HEADLINE
from shardwise.units import seconds_of

MOST_GPUS = 16_384
DEFAULT_ON = "dgx-h100"
CHINCHILLA_MFU = 0.4


def size(
    model: Annotated[str | None, Parameter(help="A catalog name or a config.json; none with --chinchilla.")] = None,
    /,
    *,
    on: Annotated[
        str, Parameter(group=CLUSTER, help="A fabric or GPU (dgx-h100, h100), or a sized cluster: the largest to try.")
    ] = DEFAULT_ON,
    within: Annotated[str | None, Parameter(help="Deadline, such as '30 d'.")] = None,
    budget: Annotated[str | None, Parameter(help="Dollars at most, such as '500k USD'.")] = None,
    rent: Annotated[
        float | None, Parameter(group=CLUSTER, help="USD per GPU hour, instead of published rents.")
    ] = None,
    max_gpus: Annotated[int, Parameter(group=CLUSTER, help="Largest cluster to try."), within(1)] = MOST_GPUS,
    chinchilla: Annotated[
        bool, Parameter(help="Compute-optimal parameters and tokens for --budget or --flops.")
    ] = False,
    flops: Annotated[str | None, Parameter(help="Compute budget, such as 1e24 or '5.8e23 FLOP'.")] = None,
    mfu: Annotated[
        float | None,
        Parameter(help="Assume this share of peak, and search no policy; --chinchilla: 0.4 if not given."),
        within(0, 1, above=True, cure="a share of the peak above 0 and at most 1"),
    ] = None,
    convention: Annotated[
        str, Parameter(help="FLOPs that --mfu counts: causal_half, 8tp (full recompute), or another of `calc mfu`.")
    ] = HEADLINE,
    flags: JobFlags = JobFlags(),  # noqa: B008  frozen
    json: Json = False,
) -> int:
    """How many GPUs and how long: every size's best policy, the smallest in time, the cheapest in budget."""
    leave_out("size", "prices steps over full sequences", flags, "lengths", "packing")
    sizes = sizes_of(on_of(flags, on))
    limit = Budget(
        usd=None if budget is None else usd_of(budget),
        seconds=None if within is None else _deadline(within),
    )
    if chinchilla:
        if model is not None:
            raise ValueError(f"size: {model!r} and --chinchilla answer different questions; write one of them")
        cluster, share = sizes.named or sizes.at(sizes.step), CHINCHILLA_MFU if mfu is None else mfu
        peak = cluster.gpu.peak(precision_of(flags.precision or DEFAULT_PRECISION).compute)
        work, bought = work_of(cluster, flops, limit, checked_rent(rent), peak * share, named=sizes.named is not None)
        return answered(chinchilla_answer(cluster, work, share, peak, bought), json)
    if model is None or flops is not None:
        raise ValueError("size: write a model (llama-3-70b --tokens 1T), or --chinchilla with --budget or --flops")
    leave_out("size", "prices steps with the mean gradient", flags, "sync")
    if mfu is None and convention != HEADLINE:
        raise ValueError(f"convention: {convention[:40]!r} says which FLOPs --mfu counts; add --mfu")
    case = asked_of_sizes(model, sizes, flags, most_gpus(sizes, max_gpus))
    notes = list(case.notes)
    usual, words = usual_training(case.model)
    trained = case.job.tokens or usual
    if not case.job.tokens:
        notes.insert(0, f"--tokens not given: {words} = {trained:,.4g} assumed")
    most = max_gpus if sizes.named is None else min(max_gpus, sizes.named.gpus)
    asked = SizeQuestion(case, sizes, trained, limit, checked_rent(rent), most)
    if mfu is not None:
        if case.job.tuning is not None:
            raise ValueError("tune: size --mfu counts a training of all parameters; leave --tune and --freeze out")
        return answered(mfu_size_answer(asked, mfu, notes, convention), json)
    found = sizes_tried(asked)
    notes += [*found.left_out, *_notes(asked, found, rent)]
    return answered(size_answer(asked, on, found.points, found.between, notes), json)


def _deadline(text: str) -> float:
    seconds = seconds_of(text, "within")
    if seconds <= 0:
        raise ValueError(f"within: {text!r} is out of range; write a time above 0, such as '30 d'")
    return seconds


def _notes(asked: SizeQuestion, found: SizesTried, rent: float | None) -> list[str]:
    cluster: Cluster = max((p.cluster for p in found.points), key=lambda each: each.gpus)
    lines = []
    if asked.least > asked.counts[0]:
        lines.append(f"fewer than {asked.least:,} GPUs would be late at their peak rate, and were not tried")
    moved = {p.cluster.gpus: p.report.global_sequences for p in found.points if p.report is not None}
    batch = asked.case.job.global_batch
    odd = [f"{gpus:,} GPUs {b:,}" for gpus, b in moved.items() if b != batch]
    lines.append(f"global batch {batch:,} sequences at every size" + (f", but on {', '.join(odd)}" if odd else ""))
    if found.between:
        lines.append(
            f"{found.between} sizes between powers of two tried, in whole nodes, the batch up to 5% off so that it "
            "divides"
        )
    last = next((p for p in reversed(found.points) if p.run is not None), None)
    if last is not None and last.run is not None:
        lines.append(failures_line(asked.case.on(last.cluster), last.run))
    if rent is not None:
        return [*lines, f"rent {rent:g} USD per GPU hour as given; {power_line(cluster)}"]
    held = "a budget is held against the highest of these rents; " if asked.limit.usd is not None else ""
    return [*lines, price_line(cluster), f"{held}--rent states yours"]
