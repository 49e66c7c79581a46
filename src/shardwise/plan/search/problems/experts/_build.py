"""An expert placement from a model, a cluster, a policy and a sample of routed tokens, measured or drawn."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from shardwise.arrays import Ints
from shardwise.cost.placement import level_members
from shardwise.fields import read_file
from shardwise.plan.search.problems.experts._problem import ExpertProblem
from shardwise.plugins.collectives import collective
from shardwise.spec.model import Experts, Model
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import machine_for
from shardwise.step.estimate.layers import expert_seconds
from shardwise.work import work_of
from shardwise.work.case import Case
from shardwise.work.ops import LayerWork

SAMPLE = 1024
MOST_TOKENS = 20_000
MOST_BYTES = 2**24
"""of a sample: so many tokens with as many experts each as any model has take a tenth"""
TOPICS_PER_EXPERT = 1 / 16
LIKING = 2.0
"""how much a topic prefers its experts, in units of the noise of one token's routing"""


@dataclass(frozen=True)
class RandomRouting:
    """How to draw a sample: popularity of the k-th expert falls as 1 / k^skew; experts of one topic fire together."""

    skew: float = 0.5
    seed: int = 0
    tokens: int = SAMPLE


def expert_problem(
    case: Case, policy: Policy, *, sample: Ints | RandomRouting | None = None, replicas: int = 0
) -> ExpertProblem:
    """`sample`: tokens x top_k expert numbers as measured, or how to draw one; `replicas`: further copies, of the
    experts that have most tokens per copy; their tokens take the copies in turn."""
    columns, cluster = Policies.of([policy]), case.cluster
    work, machine = work_of(case, columns, every_stage=True), machine_for(case, columns)
    experts, layer = _expert_layer(case.model, work.kinds)
    tokens = (
        routed(experts, sample or RandomRouting()) if not isinstance(sample, np.ndarray) else _checked(sample, experts)
    )
    size, stride, node = policy.ep, int(machine.strides["ep"][0]), cluster.levels[0].degree
    _check(experts, policy, replicas, stride, node)
    here = min(max(node // stride, 1), size)
    network, pairwise = machine.network, collective("pairwise")
    shape = level_members(network.cluster, np.array(size), np.array(stride))
    inside = [int(b) for b, crossed in zip(shape.below[1:], shape.crossed[1:], strict=True) if crossed]
    sent = next(item for item in layer.collectives if item.op == "all_to_all")
    copies = float(np.asarray(sent.bytes).reshape(-1)[0])
    whole = copied(tokens, experts.count, replicas)
    return ExpertProblem(
        tokens=whole, room=((experts.count + replicas) // size,) * size, node_ranks=here, blocks=tuple(inside),
        token_bytes=copies / experts.top_k * size / len(tokens), products_s=partial(expert_seconds, layer, machine),
        steps=pairwise.load("all_to_all", shape).steps, protocols=tuple(network.protocols(pairwise)),
    )  # fmt: skip


def _expert_layer(model: Model, kinds: tuple[LayerWork, ...]) -> tuple[Experts, LayerWork]:
    for kind, layer in zip(model.kinds, kinds, strict=True):
        if kind.experts is not None:
            return kind.experts, layer
    raise ValueError(f"model: {model.name} has no experts to place; write one that has, such as deepseek-v3")


def _check(experts: Experts, policy: Policy, replicas: int, stride: int, node: int) -> None:
    if policy.ep < 2:
        raise ValueError(f"ep: {policy.ep} rank holds every expert; write 2 or more")
    if replicas < 0 or (experts.count + replicas) % policy.ep:
        raise ValueError(f"replicas: {experts.count} experts and {replicas} replicas do not divide by ep {policy.ep}; "
                         f"write {-experts.count % policy.ep} or that and a multiple of {policy.ep}")  # fmt: skip
    here = max(node // stride, 1)
    if policy.ep > here and policy.ep % here:
        raise ValueError(f"ep: {policy.ep} ranks do not fill whole nodes of {here}; write a multiple")


def routed(experts: Experts, drawn: RandomRouting) -> Ints:
    """A drawn sample: each token has a topic, and takes the experts with the highest scores."""
    if not 0 <= drawn.skew <= 4:
        raise ValueError(f"skew: {drawn.skew:g} is out of range; write 0 (all alike) to 4")
    if not 1 <= drawn.tokens <= MOST_TOKENS:
        raise ValueError(f"sample: {drawn.tokens} tokens are out of range; write 1 to {MOST_TOKENS:,}")
    rng = np.random.default_rng(drawn.seed)
    liked = rng.permutation(-drawn.skew * np.log(np.arange(1, experts.count + 1)))
    topics = max(round(experts.count * TOPICS_PER_EXPERT), 1)
    home = rng.permutation(np.arange(experts.count) % topics)
    topic = rng.integers(topics, size=drawn.tokens)
    scores = liked + LIKING * (home == topic[:, None]) + rng.gumbel(size=(drawn.tokens, experts.count))
    return np.asarray(np.sort(np.argsort(-scores, axis=1)[:, : experts.top_k], axis=1))


def sample_of(path: Path) -> Ints:
    """A measured sample: a text file with one token per line, its experts' numbers apart by commas or spaces."""
    lines = read_file(path, "routing", MOST_BYTES, "a text file").decode("utf-8", errors="replace").splitlines()
    rows = [line.replace(",", " ").split() for line in lines if line.strip()]
    if not 1 <= len(rows) <= MOST_TOKENS:
        raise ValueError(f"routing: {path} has {len(rows)} lines; write 1 to {MOST_TOKENS:,}, one per token")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]) or not all(w.isascii() and w.isdigit() and len(w) < 7 for w in row):
            raise ValueError(f"routing: line {number} of {path} is {' '.join(row)[:40]!r}; write as many expert "
                             "numbers as on the first line")  # fmt: skip
    return np.array(rows, dtype=np.int64)


def _checked(sample: Ints, experts: Experts) -> Ints:
    ordered = np.sort(sample, axis=1)
    twice = (np.diff(ordered, axis=1) == 0).any()
    if sample.shape[1] != experts.top_k or ordered.max() >= experts.count or ordered.min() < 0 or twice:
        raise ValueError(f"routing: tokens with {sample.shape[1]} experts up to number {ordered.max()}; write "
                         f"{experts.top_k} different ones from 0 to {experts.count - 1} per token")  # fmt: skip
    return ordered


def copied(tokens: Ints, count: int, replicas: int) -> Ints:
    """The sample when hot experts have replicas, numbered from `count` on; an expert's tokens take them in turn."""
    loads = np.bincount(tokens.ravel(), minlength=count).astype(np.float64)
    numbers = [[expert] for expert in range(count)]
    for replica in range(replicas):
        hottest = int(np.argmax(loads / np.array([len(own) for own in numbers])))
        numbers[hottest].append(count + replica)
    found = tokens.copy()
    for expert, own in enumerate(numbers):
        if len(own) > 1:
            where = np.nonzero(tokens == expert)
            found[where] = np.array(own)[np.arange(len(where[0])) % len(own)]
    return found
