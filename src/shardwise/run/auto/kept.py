"""What a step keeps beside the model, split as its weights are, and compared: averages of the weights, counters."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer
from torch.utils._pytree import keystr, tree_flatten_with_path

from shardwise.run.auto.meshes import shard_place
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.split import Applied, applied


def split_program(program: UserProgram, plan: AutoPlan, mesh: DeviceMesh) -> Applied:
    """Its model on this rank, with what its optimizers step, and what it keeps of each weight."""
    model, beside = program.model, [part for part in program.parts if part is not program.model]
    copies = [each for part in beside if plan.degrees.pp == 1 for each in _copies(part, model)]
    done = applied(model, plan, mesh)
    for each in copies:
        applied(each, plan, mesh)
    shard = shard_place(plan.degrees, mesh)
    for part in beside if plan.degrees.pp == 1 else ():
        if isinstance(part, dict):
            part |= {name: _own(done, name, value, shard) for name, value in part.items()}
        elif isinstance(part, list) and len(part) == sum(1 for _ in model.parameters()):
            names = [name for name, _ in model.named_parameters()]
            part[:] = [_own(done, name, value, shard) for name, value in zip(names, part, strict=True)]
    for optimizer in program.optimizers:
        done.rebind(optimizer)
    return done


def _copies(part: Any, model: nn.Module) -> list[nn.Module]:
    """Modules with the parameters of the model, outermost."""
    form = {name: p.shape for name, p in model.named_parameters()}
    modules = part.modules() if isinstance(part, nn.Module) else ()
    return [m for m in modules if {name: p.shape for name, p in m.named_parameters()} == form][:1]


def _own(done: Applied, name: str, value: Any, shard: tuple[int, int]) -> Any:
    """This rank's part of what is kept of a parameter; anything else as it is."""
    now = dict(done.model.named_parameters()).get(name)
    if now is None or not isinstance(value, Tensor) or value.dim() != now.dim():
        return value
    sharded = hasattr(now, "to_local")
    part = done.shares.own(name, value, shard if sharded else None)
    kept: Any = torch.empty_like(now.detach(), dtype=value.dtype)
    local = kept.to_local() if sharded else kept
    if local.shape != part.shape:
        return value
    local.copy_(part)
    return kept


def kept_beside(program: UserProgram) -> Iterator[tuple[str, str, Tensor]]:
    """Label, name of the parameter it is kept of (or none), and numbers of what `build` gave beside the model."""
    names = {name for name, _ in program.model.named_parameters()}
    listed = [name for name, _ in program.model.named_parameters()]
    for place, part in enumerate(program.parts):
        if part is program.model or isinstance(part, Optimizer):
            continue
        if isinstance(part, nn.Module):
            copies = _copies_by_name(part, names)
            for name, x in (*part.named_parameters(), *part.named_buffers()):
                yield f"build()[{place}].{name}", name.removeprefix(copies), x.detach()
        elif isinstance(part, dict | list):
            for path, x in tree_flatten_with_path(part)[0]:
                of = str(getattr(path[0], "key", ""))
                of = listed[path[0].idx] if isinstance(part, list) and len(part) == len(listed) else of  # type: ignore[attr-defined]
                if isinstance(x, int | float | Tensor) and not isinstance(x, bool):
                    x = x.detach() if isinstance(x, Tensor) else torch.tensor(x)
                    yield f"build()[{place}]{keystr(path)}", of if of in names else "", x


def _copies_by_name(part: nn.Module, names: set[str]) -> str:
    """What stands before the names of the model's parameters in a module that holds a copy of it."""
    for name, module in part.named_modules():
        if {each for each, _ in module.named_parameters()} == names:
            return f"{name}." if name else ""
    return ""


def joined_beside(done: Applied, program: UserProgram) -> dict[str, Tensor]:
    """Put together from all ranks, who must all ask; stages keep nothing beside the model."""
    if done.stage is not None:
        return {}
    return {
        label: done.shares.whole(name, x) if name and (hasattr(x, "to_local") or name in done.shares.of) else x
        for label, name, x in kept_beside(program)
    }
