"""Assumptions for what a question leaves open, where another value changes the step: each with its flag."""

from collections.abc import Iterator
from dataclasses import replace

from msgspec import Struct
from msgspec.structs import replace as with_fields

from shardwise.plan import scan
from shardwise.question import Question
from shardwise.question.job import batches_near
from shardwise.spec.cards import parted, with_cards
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.synced import choice_of
from shardwise.work.case import Case

MATTERS = 0.05
"""change of the step from which on an assumption is named"""
BATCH, EVEN = "batch", "even batch"
OF_BATCH = "--global-batch not given"
"""the note of a question whose batch nobody stated"""


class Assumption(Struct, frozen=True, kw_only=True):
    name: str
    assumed: str
    instead: str
    change: float
    """of the time for the same tokens with `instead`, as a share of it"""
    flag: str

    def __str__(self) -> str:
        return f"{self.name}: {self.assumed}; {self.instead} {self.change:+.0%} ({self.flag})"


def assumptions_of(question: Question, case: Case, policy: Policy, *, advise: bool = False) -> list[Assumption]:
    """Those that move the step by more than `MATTERS`, the largest first. `advise`: also a batch that all GPUs share
    evenly, under the policy to take with it."""
    found = [*_network(case, policy), *_host(case, policy), *(_even(question, case, policy) if advise else ())]
    if any(note.startswith(OF_BATCH) for note in question.notes):
        found += _batch(case, policy)
    return sorted((each for each in found if abs(each.change) > MATTERS), key=lambda each: -abs(each.change))


def _token_s(case: Case, policy: Policy) -> float:
    """Seconds for a sequence."""
    found = estimate(case, Policies.of([policy]), sync=choice_of(policy.sync, case.job.optimizer.name))
    return float(found.times.step_s[0]) / case.job.global_batch


def _network(case: Case, policy: Policy) -> Iterator[Assumption]:
    """Half the bandwidth between nodes, where nobody stated it."""
    cluster = case.cluster
    network = next((level for level in cluster.levels if level.kind == "network"), None)
    if network is None or cluster.gpus <= cluster.node_size or parted(cluster.name)[1]:
        return
    node, gbps = cluster.levels[0].degree, network.bandwidth * 8 / 1e9
    cards = f"{node}x{gbps / 2:g}Gbps"
    slower = case.on(with_cards(cluster, cards, cluster.name))
    yield Assumption(
        name="network", assumed=f"{node} x {gbps:g} Gbps a node", instead="with half of that step",
        change=_token_s(slower, policy) / _token_s(case, policy) - 1, flag=f"--nic {cards}",
    )  # fmt: skip


def _host(case: Case, policy: Policy) -> Iterator[Assumption]:
    """The host's time to launch kernels, which CUDA graphs save."""
    per_op = case.stack.host.host_s_per_op
    if per_op and (case.profile is None or case.profile.host is None):
        without = case.changed(host_s_per_op=0.0)
        yield Assumption(
            name="host", assumed=f"{per_op * 1e6:.3g} us to launch a kernel, no CUDA graphs",
            instead="with graphs step",
            change=_token_s(without, policy) / _token_s(case, policy) - 1, flag="--profile",
        )  # fmt: skip


def _even(question: Question, case: Case, policy: Policy) -> Iterator[Assumption]:
    """Where a batch does not divide by the GPUs, the nearest that does."""
    batch = case.job.global_batch
    *_, near = batches_near(batch, case.cluster.gpus)
    if near == batch:
        return
    even = replace(case, job=with_fields(case.job, global_batch=near))
    best = scan(even, losers=False, **question.bounds).recommended
    if best is not None:
        yield Assumption(
            name=EVEN, assumed=f"{batch:,} sequences do not divide over {case.cluster.gpus:,} GPUs",
            instead=f"with {near:,} a token takes", change=best.to_loss_s / near / _token_s(case, policy) - 1,
            flag=f"--global-batch {near}",
        )  # fmt: skip


def _batch(case: Case, policy: Policy) -> Iterator[Assumption]:
    """Half as many sequences in a step."""
    half, odd = divmod(case.job.global_batch, 2)
    if odd or half % (policy.dp * policy.micro_batch):
        return
    smaller = replace(case, job=with_fields(case.job, global_batch=half))
    yield Assumption(
        name=BATCH, assumed=f"{2 * half:,} sequences a step", instead="with half of that a token takes",
        change=_token_s(smaller, policy) / _token_s(case, policy) - 1, flag="--global-batch",
    )  # fmt: skip
