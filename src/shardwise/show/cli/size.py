"""`shardwise size`: how many GPUs and how long for a number of tokens; --chinchilla: what a budget should train."""

from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.answers._budget import Budget, checked_rent, usd_of
from shardwise.answers._sizes import SizePoint, most_gpus, point_data
from shardwise.plan.that_fit import policies_that_fit
from shardwise.question import Question
from shardwise.question.job import DEFAULT_PRECISION, usual_training
from shardwise.question.studies.money import failures_line, power_line, price_line
from shardwise.report.terminal import days_text, dollars_text, legend_of, mwh_text, policy_code, usd_text
from shardwise.show.cli._at_mfu import answer_at_mfu
from shardwise.show.cli._chinchilla import chinchilla_answer
from shardwise.show.cli._flags import JobFlags, asked_of_sizes, leave_out, on_of
from shardwise.show.cli._groups import CLUSTER
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import Cell, print_json, print_notes, print_table
from shardwise.show.cli._smallest import SizeAnswer, SizeQuestion, sizes_tried
from shardwise.show.cli._that_fit import print_that_fit
from shardwise.spec.cluster import Cluster
from shardwise.spec.sizes import sizes_of
from shardwise.units import gib, seconds_of, share_text

NOT_MET = 1
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
        precision, share = flags.precision or DEFAULT_PRECISION, CHINCHILLA_MFU if mfu is None else mfu
        return chinchilla_answer(sizes, flops, limit, checked_rent(rent), share, precision, json=json)
    if model is None or flops is not None:
        raise ValueError("size: write a model (llama-3-70b --tokens 1T), or --chinchilla with --budget or --flops")
    leave_out("size", "prices steps with the mean gradient", flags, "sync")
    case = asked_of_sizes(model, sizes, flags, most_gpus(sizes, max_gpus))
    notes = list(case.notes)
    usual, words = usual_training(case.model)
    trained = case.job.tokens or usual
    if not case.job.tokens:
        notes.insert(0, f"--tokens not given: {words} = {trained:,.4g} assumed")
    most = max_gpus if sizes.named is None else min(max_gpus, sizes.named.gpus)
    asked = SizeQuestion(case, sizes, trained, limit, checked_rent(rent), most)
    if mfu is not None:
        return answer_at_mfu(asked, mfu, notes, json=json)
    found = sizes_tried(asked)
    notes += [*found.left_out, *_notes(asked, found, rent)]
    if json:
        print_json(_data(case, on, asked, found) | {"notes": notes})
    else:
        _show(asked, found.points, notes)
    return 0 if any(p.meets for p in found.points) else NOT_MET


def _deadline(text: str) -> float:
    seconds = seconds_of(text, "within")
    if seconds <= 0:
        raise ValueError(f"within: {text!r} is out of range; write a time above 0, such as '30 d'")
    return seconds


def smallest_in_time(points: list[SizePoint]) -> SizePoint | None:
    return next((p for p in points if p.report is not None and "time" not in p.misses), None)


def cheapest_in_budget(points: list[SizePoint]) -> SizePoint | None:
    inside = [p for p in points if p.run is not None and p.run.usd is not None and "dollars" not in p.misses]
    return min(inside, key=lambda p: p.run.usd[1] if p.run and p.run.usd else 0.0, default=None)


def _notes(asked: SizeQuestion, found: SizeAnswer, rent: float | None) -> list[str]:
    cluster: Cluster = found.points[0].cluster
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


def _show(asked: SizeQuestion, points: list[SizePoint], notes: list[str]) -> None:
    def cells(point: SizePoint) -> list[Cell]:
        if point.report is None or point.run is None:
            return [f"{point.cluster.gpus:,}", _why_nothing(point), *[None] * 6]
        return [f"{point.cluster.gpus:,}", policy_code(point.report.policy), f"{point.report.step_s:.4g}",
                share_text(point.report.mfu_causal_half).rstrip("%"), days_text(point.run.seconds),
                mwh_text(point.run), dollars_text(point.run.electricity_usd), usd_text(point.run)]  # fmt: skip

    print_table(
        f"{asked.case.model.name}, {asked.tokens:,.4g} tokens on {points[0].cluster.gpu.name}",
        ["GPUs", "best policy", "step s", "MFU %", "days", "MWh", "power USD", "rent USD"],
        map(cells, _without_repeats(points)), words=2, breaks=1, bars=("days",),
    )  # fmt: skip
    print_notes(_answers(asked.limit, points), title="answer")
    largest = points[-1]
    if largest.ranked.smallest is not None and not any(p.report is not None for p in points):
        case, small = asked.case.on(largest.cluster), largest.ranked.smallest
        near = f"on {largest.cluster.name}: nearest"
        print_that_fit(case, small.policy, policies_that_fit(case, small.policy), small.step_s, near=near)
    print_notes([legend_of([p.report.policy for p in points if p.report is not None]), *notes])


def _without_repeats(points: list[SizePoint]) -> list[SizePoint]:
    """Of the sizes on which nothing fits, the largest."""
    first = next((i for i, p in enumerate(points) if p.report is not None), len(points))
    return points[max(first - 1, 0) :]


def _answers(limit: Budget, points: list[SizePoint]) -> list[str]:
    quick, cheap = smallest_in_time(points), cheapest_in_budget(points)
    answers = []
    if limit.seconds is not None:
        days = days_text(limit.seconds)
        answers.append(_answer(f"smallest within {days} days", quick, f"none up to {points[-1].cluster.name}"))
    if limit.usd is not None:
        answers.append(_answer(f"cheapest within {limit.usd:,.0f} USD", cheap, "none, or no published rent"))
    if limit.seconds is not None and limit.usd is not None:
        both = next((p for p in points if p.meets), None)
        answers.append(_answer("smallest that meets both", both, "none"))
    if not answers:
        answers = [_answer("smallest that fits", quick, "none"), _answer("cheapest", cheap, "no published rent")]
    return answers


def _answer(what: str, point: SizePoint | None, none: str) -> str:
    if point is None or point.run is None:
        return f"{what}: {none}"
    rent = "" if point.run.usd is None else f", rent {usd_text(point.run)} USD"
    return f"{what}: {point.cluster.name}, {days_text(point.run.seconds)} days{rent}"


def _why_nothing(point: SizePoint) -> str:
    small = point.ranked.smallest
    if small is None:
        return "nothing legal: the batch does not divide"
    return f"over by {gib(small.peak_bytes - point.ranked.limit_bytes)} GiB"


def _data(case: Question, on: str, asked: SizeQuestion, found: SizeAnswer) -> dict[str, Any]:
    points = found.points
    quick, cheap = smallest_in_time(points), cheapest_in_budget(points)
    both = next((p for p in points if p.meets), None)
    return {
        "model": case.model.name, "on": on, "stack": case.stack.name, "tokens": asked.tokens,
        "seq_tokens": case.job.seq, "global_sequences": case.job.global_batch,
        "within_s": asked.limit.seconds, "budget_usd": asked.limit.usd,
        "sizes": [point_data(p) for p in points], "sizes_tried_between": found.between,
        "smallest_in_time": None if quick is None else quick.cluster.gpus,
        "cheapest_in_budget": None if cheap is None else cheap.cluster.gpus,
        "smallest_that_meets_all": None if both is None else both.cluster.gpus,
    }  # fmt: skip
