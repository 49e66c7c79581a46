"""`shardwise size --mfu`: how many GPUs and how long at an assumed utilization, without looking for a policy."""

from math import ceil
from typing import Any

from shardwise.question.studies.money import failures_line, price_line, run_money
from shardwise.report.report import Money
from shardwise.report.terminal import days_text, dollars_text, mwh_text, usd_text
from shardwise.show.cli._output import Cell, print_json, print_notes, print_table
from shardwise.show.cli._smallest import SizeQuestion
from shardwise.show.cli._tuning import refuse_tuning
from shardwise.spec.cluster import Cluster
from shardwise.step.estimate.mfu import HEADLINE, conventions
from shardwise.step.estimate.state import state_of

NOT_MET = 1
Size = tuple[Cluster, Money]


def answer_at_mfu(asked: SizeQuestion, mfu: float, notes: list[str], *, json: bool) -> int:
    case, sizes = asked.case, asked.sizes
    refuse_tuning("size --mfu", "counts a training of all parameters", case.job.tuning)
    gpu = sizes.at(asked.counts[0]).gpu
    flops = next(c for c in conventions(case.model, case.job.seq) if c.key == HEADLINE).flops_per_token
    rate = mfu * gpu.peak(case.job.precision.compute) / flops
    state = state_of(case.model, case.job)
    counts = {*asked.counts}
    if asked.limit.seconds is not None:
        whole = ceil(asked.tokens / (rate * asked.limit.seconds))
        step = 1 if sizes.any_count and whole < sizes.step else sizes.step
        counts |= {n for n in [ceil(whole / step) * step] if n <= min(asked.most, sizes.most)}
    found = [_at(asked, gpus, rate) for gpus in sorted(counts) if gpus >= state.gpus_for(gpu)]
    meeting = [size for size in found if not asked.limit.misses(*size)]
    answer = meeting[0] if meeting else None
    notes += [
        f"{mfu:.0%} of {gpu.peak(case.job.precision.compute) / 1e12:,.4g} TFLOP/s assumed, not predicted: "
        f"{rate:,.0f} tokens/s per GPU at every size",
        f"left out: sizes below the {state.gpus_for(gpu):,} GPUs that hold the training state, {state}; whether "
        "activations fit is not asked",
        *([failures_line(case.on(found[-1][0]), found[-1][1])] if found else []),
        price_line(sizes.at(asked.counts[0])),
    ]
    if json:
        print_json(_data(asked, mfu, rate, found, answer) | {"notes": notes})
    else:
        print_table(f"{case.model.name}, {asked.tokens:,.4g} tokens, MFU {mfu:.0%}",
                    ["GPUs", "days", "MWh", "power USD", "rent USD"], map(_cells, found), bars=("days",))  # fmt: skip
        print_notes([_answer(asked, answer)], title="answer")
        print_notes(notes)
    return 0 if answer is not None else NOT_MET


def _at(asked: SizeQuestion, gpus: int, rate: float) -> Size:
    cluster = asked.sizes.at(gpus)
    case = asked.case.on(cluster)
    rate *= gpus
    return cluster, run_money(case, case.job.step_tokens / rate, asked.tokens, rate, asked.rent)


def _cells(size: Size) -> list[Cell]:
    cluster, run = size
    return [
        f"{cluster.gpus:,}",
        days_text(run.seconds),
        mwh_text(run),
        dollars_text(run.electricity_usd),
        usd_text(run),
    ]


def _answer(asked: SizeQuestion, answer: Size | None) -> str:
    if answer is None:
        return f"none up to {min(asked.most, asked.sizes.most):,} GPUs"
    cluster, run = answer
    what = "smallest that meets the limits" if asked.limit.needs_tokens else "smallest that holds the model"
    return f"{what}: {cluster.name}, {days_text(run.seconds)} days"


def _data(asked: SizeQuestion, mfu: float, rate: float, found: list[Size], answer: Size | None) -> dict[str, Any]:
    return {
        "model": asked.case.model.name, "tokens": asked.tokens, "mfu": mfu, "tokens_per_s_per_gpu": rate,
        "within_s": asked.limit.seconds, "budget_usd": asked.limit.usd,
        "sizes": [{"gpus": cluster.gpus, "cluster": cluster.name, "seconds": run.seconds, "energy_j": run.energy_j,
                   "electricity_usd": run.electricity_usd, "usd": run.usd} for cluster, run in found],
        "smallest_that_meets_all": None if answer is None else answer[0].gpus,
    }  # fmt: skip
