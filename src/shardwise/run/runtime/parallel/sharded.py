"""ZeRO 3 by torch's FSDP2: parameters live as shards and are gathered unit by unit.

Its gathers and reductions go through our recorder; sums over tensor-parallel ranks, pipeline ends and replicas are made
on the shards. With pipeline stages the gathered parameters and whole gradients stay until the last micro-batch.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

# torch offers set_custom_all_gather for these, but does not export the classes it takes
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor import DTensor

from shardwise.run.runtime.net.decoder import Chunk
from shardwise.run.runtime.net.experts import ExpertWeights
from shardwise.run.runtime.parallel.comm import RankComm, RankGroup
from shardwise.run.runtime.parallel.flat import sum_over
from shardwise.run.runtime.parallel.held import (
    Local,
    ParameterSpan,
    PieceRuns,
    RankParameter,
    frozen_in,
    held_by,
)
from shardwise.run.runtime.parallel.world import RankWorld, pretended
from shardwise.run.runtime.private import fsdp_groups
from shardwise.spec.job import Precision


class _Allocates:
    def __init__(self, comm: RankComm, group: RankGroup) -> None:
        self.comm, self.group = comm, group

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class RecordedGather(_Allocates, AllGather):
    # torch names its arguments, so the group it passes cannot be left out; ours is the same one
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,  # noqa: ARG002
        async_op: bool = False,
    ) -> Any:
        pending = self.comm.start_gather(output_tensor, input_tensor, self.group)
        if async_op:
            return pending
        pending.wait()
        return None


class RecordedScatter(_Allocates, ReduceScatter):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,  # noqa: ARG002
        op: Any,
        async_op: bool = False,
    ) -> Any:
        pending = self.comm.start_scatter(output_tensor, input_tensor, self.group, op)
        if async_op:
            return pending
        pending.wait()
        return None


def mixed_precision(precision: Precision) -> MixedPrecisionPolicy:
    if precision.compute == "fp32":
        return MixedPrecisionPolicy()
    reduce = torch.float32 if precision.grad_comm_bytes == 4 else torch.bfloat16
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce)


class FsdpChunk:
    """One chunk under FSDP2."""

    def __init__(self, chunk: Chunk, world: RankWorld, precision: Precision) -> None:
        self.chunk, self.world, self.precision = chunk, world, precision
        self.staged = world.policy.pp > 1
        self.held = held_by(chunk)
        meshes: dict[tuple[int, ...], DeviceMesh] = {}
        tied = chunk.embedding is not None and chunk.head is not None and chunk.context.model.tied
        for part in reversed(chunk.parts):
            # a table that embedding and head share has to lie in the unit around both
            if (part.pieces or part.frozen) and not (tied and part in (chunk.embedding, chunk.head)):
                self._unit(part, self._group(part), meshes)
        self._unit(chunk, world.shard, meshes)
        self._end_prefetch()
        if self.staged:
            self._hold()

    def _end_prefetch(self) -> None:
        """No gradient reaches what lies before the lowest layer that trains, so the backward need not gather it again
        (FSDP2 would: it gathers the unit before each one ahead)."""
        lowest: Any = dict(self.chunk.layers).get(str(self.chunk.lowest))
        if frozen_in(self.chunk) and lowest is not None:
            lowest.set_modules_to_backward_prefetch([lowest])

    def _group(self, part: nn.Module) -> RankGroup:
        return self.world.expert_shard if isinstance(part, ExpertWeights) else self.world.shard

    def _unit(self, module: nn.Module, group: RankGroup, meshes: dict[tuple[int, ...], DeviceMesh]) -> None:
        if group.ranks not in meshes:
            handle = group.handle or self._alone()
            # a mesh reads its ranks from a tensor, which must have values in a fake world too
            with unset_fake_temporarily():
                meshes[group.ranks] = DeviceMesh.from_group(handle, self.world.device.type)
        unit = fully_shard(
            module, mesh=meshes[group.ranks], reshard_after_forward=not self.staged,
            mp_policy=mixed_precision(self.precision),
        )  # fmt: skip
        comm = self.world.comm
        unit.set_custom_all_gather(RecordedGather(comm, group))
        unit.set_custom_reduce_scatter(RecordedScatter(comm, group))
        # the loss is divided by the tokens of the whole batch: gradients are sums
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)

    def _alone(self) -> dist.ProcessGroup:
        """A group of this rank only; all ranks take part in making everyone's."""
        rank = self.world.rank
        made = {r: dist.new_group([r]) for r in range(self.world.size) if r == rank or not pretended()}
        found: dist.ProcessGroup = made[rank]
        return found

    @property
    def module(self) -> FSDPModule:
        assert isinstance(self.chunk, FSDPModule)
        return self.chunk

    def begin(self, _: bool, /) -> None:
        """Nothing: a backward may also come in two halves, and no half of one may send anything."""

    def _hold(self) -> None:
        """Until the last micro-batch."""
        self.module.set_is_last_backward(False)
        self.module.set_requires_gradient_sync(False)
        self.module.set_reshard_after_backward(False)

    def finish(self, last: bool, /) -> None:
        if not last:
            return
        if self.staged:
            self._reduce_now()
            self._hold()
        comm, world = self.world.comm, self.world
        with comm.during("step"):
            sum_over(comm, world.tp, [self._grad(h) for h in self.held if h.piece.partial])
            sum_over(comm, world.kv, [self._grad(h) for h in self.held if h.piece.copied])
            sum_over(comm, world.ends, [self._grad(h) for h in self.held if h.piece.tied])
            sum_over(comm, world.replica, [self._grad(h) for h in self.held if not h.piece.expert])
            sum_over(comm, world.expert_replica, [self._grad(h) for h in self.held if h.piece.expert])

    def _reduce_now(self) -> None:
        """As torch's own pipeline runtime does it after the last micro-batch."""
        self.module.set_is_last_backward(True)
        self.module.set_reshard_after_backward(True)
        self.module.set_requires_gradient_sync(True)
        state: Any = fully_shard.state(self.module)  # type: ignore[attr-defined]
        for one in state._state_ctx.all_states:
            for group in fsdp_groups(one):
                group.post_backward()
        state._root_post_backward_final_callback()

    @staticmethod
    def _grad(held: RankParameter) -> Tensor | None:
        grad = held.parameter.grad
        return grad.to_local() if isinstance(grad, DTensor) else grad

    def locals(self) -> list[Local]:
        return [self._local(held) for held in self.held]

    def frozen(self) -> list[Local]:
        return [self._local(held) for held in frozen_in(self.chunk)]

    def _local(self, held: RankParameter) -> Local:
        p: Any = held.parameter
        local = p.to_local().detach().view(-1)
        group = self._group(held.part)
        first, _ = self._run(held, group.index)
        copies = (self.world.expert_replica if held.piece.expert else self.world.replica).size
        grad = self._grad(held)
        grad = None if grad is None else grad.reshape(-1)
        return Local(local, (ParameterSpan(held, first, 0, local.numel()),), copies, grad)

    def _run(self, held: RankParameter, index: int) -> tuple[int, int]:
        """First element of a shard, and how many it has: as many rows as every other, or what is left of them."""
        rows, group = held.parameter.shape[0], self._group(held.part)
        each, width = -(-rows // group.size), held.parameter.numel() // rows
        first, end = (min(i * each, rows) * width for i in (index, index + 1))
        return first, end - first

    def shares(self, held: RankParameter) -> PieceRuns | None:
        group = self._group(held.part)
        runs = (self._run(held, index) for index in range(group.size))
        return PieceRuns(group, tuple((run,) if run[1] else () for run in runs))

    def gather(self, *, rounded: bool = False) -> None:
        """The next forward gathers."""

    def clear(self) -> None:
        for held in self.held:
            held.parameter.grad = None

    def parameter_bytes(self) -> int:
        return self.gradient_bytes() + sum(local.tensor.nbytes for local in self.frozen())

    def gradient_bytes(self) -> int:
        """A shard's gradient has the shard's size and dtype."""
        return sum(local.tensor.nbytes for local in self.locals())

    def master_bytes(self) -> int:
        """The shards themselves are in fp32."""
        return 0
