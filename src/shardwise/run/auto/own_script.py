"""A split model in a user's own script: what the script goes on to do with it is made right, or refused by name.

Clipping takes the norm over all ranks, dropout draws the same numbers on ranks that share tensors, and a checkpoint is
put together from the shares of all ranks.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Muon
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from shardwise.run.auto.means import count_over_ranks
from shardwise.run.auto.meshes import batch_mesh, mesh_of, shard_place
from shardwise.run.auto.norms import norm_over_ranks
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.split import Applied, applied, reshard
from shardwise.run.auto.truth import saved_buffers

APPLIED = "_shardwise"
"""attribute of a split model"""
COMPARED = 2
"""first calls of the model in which the inputs of ranks that share tensors are compared"""
SEEDS = 2**62
_REPLACED: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""parameters that models had before they were split"""
_PIECES: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""parameters that tensor parallelism has cut"""


def parallelize(model: nn.Module, plan: AutoPlan, mesh: DeviceMesh | None = None) -> nn.Module:
    """The model with this rank's share of the plan applied, changed in place: FSDP2 over `dp`, cut GEMMs over `tp`,
    recomputed blocks. `mesh` has the axes that the plan uses, by name; without one it is made of all ranks. An
    optimizer is made afterwards."""
    degrees = plan.degrees
    mesh = mesh_of(degrees, next(model.parameters()).device.type) if mesh is None else mesh
    if degrees.pp > 1 or degrees.cp > 1:
        raise ValueError(f"plan: {degrees.text} changes the step, not the model alone; run it with `shardwise auto`")
    before = list(model.parameters())
    done = applied(model, plan, mesh)
    now = {id(p) for p in model.parameters()}
    if not _REPLACED:
        register_optimizer_step_pre_hook(_refuse_replaced)
    _REPLACED.update({p: True for p in before if id(p) not in now})
    _PIECES.update({model.get_parameter(name): True for name in done.shares.of})
    setattr(model, APPLIED, done)
    norm_over_ranks(done)
    if plan.token_means and degrees.dp > 1:
        count_over_ranks(model, plan, batch_mesh(mesh))
    if degrees.tp > 1:
        _Alike(done)
    if degrees.tp > 1 or degrees.ep > 1:
        model.register_state_dict_pre_hook(_refuse_share)  # type: ignore[no-untyped-call]
    return model


def _refuse_replaced(optimizer: Optimizer, *_: Any) -> None:
    if any(p in _REPLACED for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            "optimizer: it was made before shardwise.parallelize, which replaced the parameters; make it afterwards"
        )
    if isinstance(optimizer, Muon) and any(p in _PIECES for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            "optimizer: torch.optim.Muon computes with whole matrices, and tp has cut these; write fix=['tp=1']"
        )


def _refuse_share(*_: Any) -> None:
    raise ValueError(
        "state_dict: this rank holds a share of the numbers; write shardwise.whole_state(model) on every rank"
    )


class _Alike:
    """Ranks that share tensors get the same samples, and draw the same random numbers while the model runs."""

    def __init__(self, done: Applied) -> None:
        self.group = done.shares.group
        self.device = torch.device(done.mesh.device_type)
        seed = torch.tensor([torch.initial_seed() % SEEDS], device=self.device)
        dist.broadcast(seed, dist.get_global_rank(self.group, 0), group=self.group)
        place = batch_mesh(done.mesh).get_local_rank() if done.plan.degrees.dp > 1 else 0
        self.seeds = torch.Generator().manual_seed(int(seed) + place)
        self.calls = 0
        self.before: list[Tensor] = []
        done.model.register_forward_pre_hook(self.begin, with_kwargs=True)
        done.model.register_forward_hook(self.end, always_call=True)

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls += 1
        if self.calls <= COMPARED and dist.get_backend(self.group) != "fake":  # `trace` runs one rank alone
            self._compare((args, kwargs))
        if not model.training:
            return
        self.before = [state.get_rng_state() for state in self._generators()]
        torch.manual_seed(int(torch.randint(SEEDS, (), generator=self.seeds)))

    def end(self, *_: Any) -> None:
        for generator, state in zip(self._generators(), self.before, strict=False):
            generator.set_rng_state(state)
        self.before = []

    def _generators(self) -> list[Any]:
        return [torch, *([] if self.device.type == "cpu" else [torch.get_device_module(self.device)])]

    def _compare(self, inputs: Any) -> None:
        sums = [float(x.detach().double().sum()) for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.numel()]
        given: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(given, sums, group=self.group)
        if any(each != given[0] and str(each) != str(given[0]) for each in given):
            raise ValueError(
                "batch: ranks that share tensors (tp) got different samples; give the ranks of one place of dp the same"
            )


def _applied(model: nn.Module) -> Applied:
    done = getattr(model, APPLIED, None)
    if not isinstance(done, Applied):
        raise ValueError("model: it was not split by shardwise.parallelize; write its own state_dict()")
    reshard(model)
    return done


def whole_state(model: nn.Module, *optimizers: Optimizer) -> dict[str, Any]:
    """The numbers of all ranks put together, on the CPU of rank 0; the other ranks, which must call it too, get an
    empty dict. `model` loads into the plain model; the state of an optimizer is by the names of its parameters."""
    done = _applied(model)
    names = _names(model)
    first = dist.get_rank() == 0
    shared: dict[int, Tensor] = {}
    state: dict[str, Any] = {"model": {}, "optimizers": []}

    def keep(target: dict[str, Any], name: str, value: Any) -> None:
        if first:
            target[name] = value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value

    for name, held in model.named_parameters(remove_duplicate=False):
        if id(held) not in shared:
            shared[id(held)] = done.shares.whole(names[id(held)], held)
        keep(state["model"], name, shared[id(held)])
    for name, saved in saved_buffers(model).items():
        keep(state["model"], name, saved)
    for optimizer in optimizers:
        kept: dict[str, Any] = {}
        for parameter, values in optimizer.state.items():
            own: dict[str, Any] = {}
            for key, value in values.items():
                as_large = isinstance(value, Tensor) and value.shape == parameter.shape
                keep(own, key, done.shares.whole(names[id(parameter)], value) if as_large else value)
            keep(kept, names[id(parameter)], own)
        groups = [{**group, "params": [names[id(p)] for p in group["params"]]} for group in optimizer.param_groups]
        if first:
            state["optimizers"].append({"state": kept, "groups": groups})
    return state if first else {}


def load_whole_state(model: nn.Module, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
    """What `whole_state` gave, on every rank and for any split: each keeps its share."""
    done = _applied(model)
    names = _names(model)
    if len(state["optimizers"]) not in (0, len(optimizers)):
        raise ValueError(f"state: it has {len(state['optimizers'])} optimizers; write as many, not {len(optimizers)}")
    buffers = saved_buffers(model)
    wanted = {name for name, _ in model.named_parameters(remove_duplicate=False)} | buffers.keys()
    odd = sorted(wanted ^ state["model"].keys())
    if odd:
        raise ValueError(f"state: {odd[0]} is only in one of the state and the model; load the state of this model")
    for name, parameter in model.named_parameters():
        _fill(done, name, parameter.detach(), state["model"][name])
    for name, buffer in buffers.items():
        buffer.copy_(state["model"][name])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=False):
        _load_optimizer(done, names, optimizer, saved)


def _load_optimizer(done: Applied, names: Mapping[int, str], optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    settings = {name: group for group in saved["groups"] for name in group["params"]}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            group.update({key: value for key, value in settings[name].items() if key != "params"})
            own = optimizer.state[parameter] = {}
            for key, value in saved["state"].get(name, {}).items():
                if isinstance(value, Tensor) and value.dim():
                    own[key] = torch.zeros_like(parameter, dtype=value.dtype)
                    _fill(done, name, own[key], value)
                else:
                    own[key] = value.clone() if isinstance(value, Tensor) else value


def _fill(done: Applied, name: str, own: Any, whole: Tensor) -> None:
    sharded = hasattr(own, "to_local")
    part = done.shares.own(name, whole, shard_place(done.plan.degrees, done.mesh) if sharded else None)
    local = own.to_local() if sharded else own
    if local.shape != part.shape:
        raise ValueError(f"state: {name} has the shape {tuple(whole.shape)}; load the state of this model")
    local.copy_(part)


def _names(model: nn.Module) -> dict[int, str]:
    return {id(p): name for name, p in model.named_parameters()}
