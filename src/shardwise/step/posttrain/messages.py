"""What a step of post-training sends besides its training: bytes between the ranks of an engine, and bytes of weights
from the trainer's layout to the engines', tensor by tensor."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

from shardwise.spec.arch.tensors import Tensor, embedding_tensors, head_tensors, layer_tensors
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy, expert_tp

Range = tuple[int, int]
AXES = {"column": 0, "vocab": 0, "row": 1}
"""of a matrix, along which tensor parallelism cuts it"""


@dataclass(frozen=True)
class LayoutOfRanks:
    """A policy, and which layers each of its stages has."""

    policy: Policy
    layers: Sequence[Range]
    """[first, end) of each stage"""

    @property
    def stage_ranks(self) -> int:
        return self.policy.gpus // self.policy.pp

    def ranges(self, tensor: Tensor, rank: int) -> list[Range]:
        """This rank's part of a tensor of its stage, axis by axis."""
        policy, inside = self.policy, rank % self.stage_ranks
        found = [(0, length) for length in tensor.shape]
        if tensor.split == "expert":
            etp = int(expert_tp(Policies.of([policy]))[0])
            inner = 2 if tensor.role.startswith("expert.down.") else 1
            found[0] = _part(found[0], policy.ep, inside // etp % policy.ep)
            found[inner] = _part(found[inner], etp, inside % etp)
        elif tensor.split in AXES:
            parts = min(policy.tp, tensor.pieces or policy.tp)
            axis = AXES[tensor.split]
            found[axis] = _part(found[axis], parts, inside % policy.tp // (policy.tp // parts))
        shards = policy.shard_group or policy.dp * policy.cp
        if policy.zero == 3 and shards > 1:
            first, end = found[0]
            rows = ceil((end - first) / shards)
            start = first + min(inside // policy.tp % shards * rows, end - first)
            found[0] = start, min(start + rows, end)
        return found

    def holds(self, model: Model, rank: int) -> set[str]:
        """Names of the parts of the model on this rank: layers by number, embedding and head."""
        stage = rank // self.stage_ranks
        first, end = self.layers[stage]
        found = {str(layer) for layer in range(first, end)}
        found |= {"embedding"} if stage == 0 or (model.tied and stage == self.policy.pp - 1) else set()
        return found | ({"head"} if stage == self.policy.pp - 1 else set())


def _part(whole: Range, parts: int, index: int) -> Range:
    each = (whole[1] - whole[0]) // parts
    return whole[0] + index * each, whole[0] + (index + 1) * each


def _tensors(model: Model) -> Iterator[tuple[str, Tensor]]:
    for layer, kind in enumerate(model.pattern):
        yield from ((str(layer), tensor) for tensor in layer_tensors(model, kind))
    yield from (("embedding", tensor) for tensor in embedding_tensors(model))
    yield from (("head", tensor) for tensor in head_tensors(model))


def weight_bytes(
    model: Model, element: float, trains: LayoutOfRanks, engine_tp: int, rolling: int, *, together: bool
) -> float:
    """That cross links when weights go to all ranks that roll out; `together`: those are the trainer's own ranks, and
    what one of them has already does not travel."""
    rolls = LayoutOfRanks(Policy(tp=engine_tp, dp=rolling // engine_tp), [(0, model.layers)])
    sent = 0
    for rank in range(rolling):
        here = trains.holds(model, rank) if together else set()
        for part, tensor in _tensors(model):
            need = rolls.ranges(tensor, rank)
            sent += prod(end - first for first, end in need)
            if part in here:
                sent -= _common(need, trains.ranges(tensor, rank))
    return element * sent


def _common(left: list[Range], right: list[Range]) -> int:
    return prod(max(min(a[1], b[1]) - max(a[0], b[0]), 0) for a, b in zip(left, right, strict=True))


def engine_bytes(model: Model, element: float, tp: int, prompt: int, lengths: Sequence[int]) -> float:
    """That one rank of an engine sends while these answers are made: sums behind embedding and blocks for each token
    that passes, and the gathered logits of each token drawn. The last token of an answer does not pass."""
    if tp == 1:
        return 0.0
    drawn = sum(lengths)
    passed = len(lengths) * prompt + drawn - len(lengths)
    sums = 1 + sum(model.kinds[kind].blocks for kind in model.pattern)
    return element * (passed * sums * model.hidden + drawn * model.vocab)
