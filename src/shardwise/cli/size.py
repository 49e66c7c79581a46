"""`shardwise size`: how many GPUs and how long for a number of tokens; --chinchilla: what a budget should train."""

from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.arch.tensors import active_parameters
from shardwise.cli._budget import Budget, checked_rent, usd_of
from shardwise.cli._case import Fixed, JobFlags, OpenCase, open_case_of
from shardwise.cli._chinchilla import chinchilla_answer
from shardwise.cli._job import DEFAULT_PRECISION
from shardwise.cli._options import Json
from shardwise.cli._output import Cell, print_json, print_notes, print_table
from shardwise.cli._points import SizePoint, counts_of, point_at, point_data
from shardwise.cli._progress import answers, left_out
from shardwise.estimate.chinchilla import TOKENS_PER_PARAMETER
from shardwise.plan.constraints import constraints_of
from shardwise.report.terminal import policy_code, usd_text
from shardwise.spec.cluster import Cluster
from shardwise.spec.sizes import sizes_of
from shardwise.studies.money import price_line
from shardwise.units import gib, seconds_of, share_text, size_unit, time_text

NOT_MET = 1
DAY = 86400.0
MOST_GPUS = 16_384
DEFAULT_ON = "dgx-h100"


def size(
    model: Annotated[str | None, Parameter(help="A catalog name or a config.json; none with --chinchilla.")] = None,
    /,
    *,
    on: Annotated[
        str, Parameter(help="A fabric or GPU (dgx-h100, h100), or a sized cluster: the largest to try.")
    ] = DEFAULT_ON,
    tokens: Annotated[str | None, Parameter(help="Tokens to train on, such as 1T; default: 20 per parameter.")] = None,
    within: Annotated[str | None, Parameter(help="Deadline, such as '30 d'.")] = None,
    budget: Annotated[str | None, Parameter(help="Dollars at most, such as '500k USD'.")] = None,
    rent: Annotated[float | None, Parameter(help="USD per GPU hour, instead of published rents.")] = None,
    max_gpus: Annotated[int, Parameter(help="Largest cluster to try.")] = MOST_GPUS,
    fix: Fixed = None,
    chinchilla: Annotated[
        bool, Parameter(help="Compute-optimal parameters and tokens for --budget or --flops.")
    ] = False,
    flops: Annotated[str | None, Parameter(help="Compute budget, such as 1e24 or '5.8e23 FLOP'.")] = None,
    mfu: Annotated[float, Parameter(help="Share of peak assumed by --chinchilla.")] = 0.4,
    flags: JobFlags = JobFlags(),  # noqa: B008  frozen
    json: Json = False,
) -> int:
    """How many GPUs and how long: every size's best policy, the smallest in time, the cheapest in budget."""
    sizes = sizes_of(on)
    limit = Budget(
        usd=None if budget is None else usd_of(budget),
        seconds=None if within is None else _deadline(within),
    )
    if chinchilla:
        if model is not None:
            raise ValueError(f"size: {model!r} and --chinchilla answer different questions; write one of them")
        precision = flags.precision or DEFAULT_PRECISION
        return chinchilla_answer(sizes, flops, limit, checked_rent(rent), mfu, precision, json=json)
    if model is None or flops is not None:
        raise ValueError("size: write a model (llama-3-70b --tokens 1T), or --chinchilla with --budget or --flops")
    case, notes = open_case_of(model, flags, tokens=tokens, only=constraints_of(fix or ()))
    trained = case.job.tokens or TOKENS_PER_PARAMETER * active_parameters(case.model)
    if not case.job.tokens:
        notes.insert(0, f"--tokens not given: 20 per parameter = {trained:,.4g} assumed")
    if max_gpus < 1:
        raise ValueError(f"max-gpus: {max_gpus} is out of range; write a whole number of 1 or more")
    counts = counts_of(sizes, max_gpus)
    points = answers(counts, "cluster sizes", lambda gpus: point_at(case, sizes, gpus, trained, limit, rent))
    notes += left_out(points, counts, "cluster sizes")
    notes += _notes(points[0].cluster, rent)
    if json:
        print_json(_data(case, on, trained, limit, points) | {"notes": notes})
    else:
        _show(case, trained, limit, points, notes)
    asked = [p for p in points if p.meets]
    return 0 if asked else NOT_MET


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


def _notes(cluster: Cluster, rent: float | None) -> list[str]:
    lines = ["the global batch stays the same at every size; z is the ZeRO stage, mb the micro-batch",
             "days and dollars: no failures, checkpoints or restarts"]  # fmt: skip
    if rent is not None:
        return [*lines, f"rent {rent:g} USD per GPU hour as given"]
    return [*lines, price_line(cluster), "a budget is held against the highest of these rents; --rent states yours"]


def _show(case: OpenCase, tokens: float, limit: Budget, points: list[SizePoint], notes: list[str]) -> None:
    unit = size_unit(max((p.report.peak_bytes for p in points if p.report is not None), default=2.0**30))

    def cells(point: SizePoint) -> list[Cell]:
        if point.report is None or point.run is None:
            return [f"{point.cluster.gpus:,}", _why_nothing(point), None, None, None, None, None]
        return [f"{point.cluster.gpus:,}", policy_code(point.report.policy), f"{point.report.step_s:.4g}",
                share_text(point.report.mfu_causal_half).rstrip("%"), unit.text(point.report.peak_bytes),
                f"{point.run.seconds / DAY:,.4g}", usd_text(point.run)]  # fmt: skip

    print_table(
        f"{case.model.name}, {tokens:,.4g} tokens on {points[0].cluster.gpu.name}",
        ["GPUs", "best policy", "step s", "MFU %", unit.name, "days", "USD"], map(cells, points), words=2,
    )  # fmt: skip
    answers = []
    quick, cheap = smallest_in_time(points), cheapest_in_budget(points)
    if limit.seconds is not None:
        answers.append(
            _answer(f"smallest within {time_text(limit.seconds)}", quick, f"none up to {points[-1].cluster.name}")
        )
    if limit.usd is not None:
        answers.append(_answer(f"cheapest within {limit.usd:,.0f} USD", cheap, "none, or no published rent"))
    if limit.seconds is not None and limit.usd is not None:
        both = next((p for p in points if p.meets), None)
        answers.append(_answer("smallest that meets both", both, "none"))
    if not answers:
        answers = [_answer("smallest that fits", quick, "none"), _answer("cheapest", cheap, "no published rent")]
    print_notes(answers, title="answer")
    print_notes(notes)


def _answer(what: str, point: SizePoint | None, none: str) -> str:
    if point is None or point.run is None:
        return f"{what}: {none}"
    return f"{what}: {point.cluster.name}, {time_text(point.run.seconds)}, {usd_text(point.run)} USD"


def _why_nothing(point: SizePoint) -> str:
    small = point.ranked.smallest
    if small is None:
        return "nothing legal: the batch does not divide"
    return f"over by {gib(small.peak_bytes - point.ranked.limit_bytes)} GiB"


def _data(case: OpenCase, on: str, tokens: float, limit: Budget, points: list[SizePoint]) -> dict[str, Any]:
    quick, cheap = smallest_in_time(points), cheapest_in_budget(points)
    both = next((p for p in points if p.meets), None)
    return {
        "model": case.model.name, "on": on, "stack": case.stack.name, "tokens": tokens, "seq_tokens": case.job.seq,
        "global_sequences": case.job.global_batch, "within_s": limit.seconds, "budget_usd": limit.usd,
        "sizes": [point_data(p) for p in points],
        "smallest_in_time": None if quick is None else quick.cluster.gpus,
        "cheapest_in_budget": None if cheap is None else cheap.cluster.gpus,
        "smallest_that_meets_all": None if both is None else both.cluster.gpus,
    }  # fmt: skip
