"""The notes of a plan: what everyone should know, and the details that `--verbose` adds."""

from collections.abc import Iterator, Sequence

from shardwise.answers._lengths import HOW
from shardwise.answers._planned import Planned, bottleneck_of
from shardwise.answers._strategies import StrategyRow, strategy_notes
from shardwise.plan import Ranking
from shardwise.plan.constraints import words_of
from shardwise.question.studies.money import failures_line, price_line
from shardwise.question.studies.nearly_full import nearly_full
from shardwise.question.studies.tuning import tuning_facts
from shardwise.question.words import refusal_of
from shardwise.report.terminal import legend_of, policy_code, policy_text
from shardwise.spec.policy import Policy
from shardwise.step.estimate.releases import release_lines
from shardwise.units import gib


def plan_notes(planned: Planned) -> list[str]:
    """Nobody who acts on the plan should miss them."""
    question, taken = planned.question, planned.ranked.recommended
    notes = list(question.notes)
    if not planned.ranked.best:
        notes += _nothing_fits(planned)
    if not planned.ranked.finished:
        notes.append("interrupted: the best so far, not the best of all")
    if taken is not None:
        full = nearly_full(taken.peak_bytes, planned.cluster.gpu.memory_bytes)
        notes += [f"{policy_code(taken.policy)}: {line}" for line in full]
    near = 1 + planned.apart
    close = sum(each.to_loss_s <= planned.listed[0].to_loss_s * near for each in planned.listed)
    if close > 1:
        apart = planned.listed[close - 1].to_loss_s / planned.listed[0].to_loss_s - 1
        notes.append(f"the first {close} lie within {apart:.1%}, the usual error is {planned.apart:.0%}: treat them as "
                     "equal")  # fmt: skip
    return notes


def _nothing_fits(planned: Planned) -> Iterator[str]:
    ranked, small = planned.ranked, planned.ranked.smallest
    if small is None:
        yield refusal_of(planned.question.only, planned.question, planned.cluster)
        return
    yield (
        f"the smallest needs {gib(small.peak_bytes)} GiB of {gib(ranked.limit_bytes)} that may be filled: "
        f"{policy_text(small.policy)}"
    )
    yield f"use more than {planned.cluster.gpus:,} GPUs, a shorter sequence, or an optimizer with less state"


def plan_details(planned: Planned, strategies: Sequence[StrategyRow], also: Sequence[Policy] = ()) -> list[str]:
    """`also`: further policies that are shown by their codes."""
    question, ranked, cluster, taken = planned.question, planned.ranked, planned.cluster, planned.ranked.recommended
    only, stack = words_of(question.only), question.stack
    coded = [*(found.policy for found in (*planned.listed, ranked.recommended, ranked.fastest) if found), *also]
    details = [legend_of(coded)] if coded else []
    if ranked.points:
        details.append(f"{ranked.points:,} legal policies{f' with {only}' if only else ''}{_looked_at(ranked)}")
    details += [
        f"memory budget {gib(ranked.limit_bytes)} of {gib(cluster.gpu.memory_bytes)} GiB (--headroom, --risk); "
        f"free: memory left on the fullest GPU after a reserve of {gib(stack.memory.reserve_bytes)} GiB for "
        "uncounted buffers",
        *_meaning(planned), stack_line(planned),
    ]  # fmt: skip
    facts = tuning_facts(planned.case)
    details += [str(facts)] if facts is not None else []
    details += planned.case.notes
    if question.job.tokens and taken is not None:
        details.append(failures_line(planned.case, planned.run_money(taken)))
    details.append(price_line(cluster))
    details += [f"fabric: {cluster.assumed}"] if cluster.assumed else []
    if planned.first is not None:
        part = bottleneck_of(planned.first)
        details += release_lines(planned.case, planned.first.policy)
        details.append(f"bottleneck of the first besides compute: {part}, {planned.first.shares.get(part, 0.0):.1%} of "
                       "the step")  # fmt: skip
    if strategies:
        details += strategy_notes(planned, strategies)
    full = next((found for found in planned.listed if nearly_full(found.peak_bytes, cluster.gpu.memory_bytes)), None)
    if full is not None and (taken is None or full.policy != taken.policy):
        line = nearly_full(full.peak_bytes, cluster.gpu.memory_bytes)[0]
        details.append(f"{policy_code(full.policy)}, and others as full: {line}")
    return details


def stack_line(planned: Planned) -> str:
    """The software assumed, and how far its predictions were off."""
    name = planned.question.stack.name
    return f"stack {name}; error: {planned.first.error_basis}" if planned.first else f"stack {name}"


def _looked_at(ranked: Ranking) -> str:
    if ranked.evaluated >= ranked.points:
        return ", all estimated"
    return f": {ranked.evaluated:,} estimated, the rest shown by bounds to be slower or too large"


def _meaning(planned: Planned) -> list[str]:
    choice = planned.question.lengths
    if choice is None:
        return ["tok/s is per GPU; MFU counts the causal half of attention"]
    return [
        f"steps and tok/s (per GPU) are of the data: lengths {choice.lengths.name}, {HOW[choice.packing]}; memory is "
        "of sequences as long as --seq",
        "wait: extra time of the slowest rank over the mean; data: share of computed tokens that is not padding",
        "the ranking covers the fastest policies with full sequences and with as many as the data packs into, not all; "
        "predictions for such lengths were not compared with measured runs",
    ]
