"""A split proven over NCCL, on the GPU that all ranks share. One process trains on the CPU as for any proof, but each
rank does that for itself before it meets the others: a backward pass wakes CUDA, and no process may be forked then."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msgspec import structs
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.proof import Proof
from shardwise.run.auto.prove import begun, cannot_prove, judged, not_run
from shardwise.run.auto.rank import RankSeen, rank_seen
from shardwise.run.auto.truth import Truth, truth_of
from shardwise.run.runtime.share_gpu import SharedGpuSeats
from shardwise.run.runtime.train.fork import forked

GPU = "cuda"


def proven_on_gpu(program: UserProgram, ranks: int, planned: Callable[[], AutoPlan]) -> tuple[Proof, AutoPlan]:
    """`planned`: the split, asked in every rank."""
    if program.loop is not None:
        raise ValueError(
            "share-gpu: a script that runs from top to bottom was run on the CPU, with its tensors there; write the "
            "functions build, batch and step, or leave --share-gpu away"
        )
    known: list[tuple[Truth, AutoPlan, str]] = []

    def before() -> None:
        truth, plan = truth_of(program), planned()
        why = cannot_prove(program, plan, truth)
        if truth.draws:
            why = "its steps draw random numbers, which a GPU draws otherwise than the CPU; leave --share-gpu away"
        known.append((truth, plan, why))

    def work(rank: int) -> tuple[RankSeen | None, tuple[Truth, AutoPlan, str] | None]:
        truth, plan, why = known[0]
        seen = None if why else rank_seen(*_placed(program, truth), plan)
        return seen, None if rank else known[0]

    try:
        answers = forked(ranks, work, SharedGpuSeats(), before)
    except RuntimeError as error:
        # the plan is made in ranks that did not get so far
        plan = planned()
        return not_run(begun(program, plan), error), plan
    first = answers[0][1]
    assert first is not None
    truth, plan, why = first
    proof = begun(program, plan)
    if why:
        return structs.replace(proof, why=why), plan
    seen = [one for one, _ in answers if one is not None]
    return judged(proof, seen, program, plan, truth), plan


def _placed(program: UserProgram, truth: Truth) -> tuple[UserProgram, Truth]:
    """A rank's own copy on the GPU. Parameters are moved in place: optimizers hold them."""
    own = program.copy()
    for part in own.parts:
        if isinstance(part, nn.Module):
            part.to(GPU)
    own.parts = tuple(_moved(part) if isinstance(part, dict | list) else part for part in own.parts)
    own.batches = _moved(own.batches)
    return own, replace(truth, gradients=_moved(truth.gradients), buffers=_moved(truth.buffers))


def _moved(value: Any) -> Any:
    return tree_map(lambda x: x.to(GPU) if isinstance(x, Tensor) else x, value)
