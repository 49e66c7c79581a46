"""The printed code of a split run by itself: losses of its steps against one process. For `auto.py`."""

import ast
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

from shardwise.run.auto.draws import draws_begin
from shardwise.run.auto.explain import explained
from shardwise.run.auto.meshes import batch_mesh
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.truth import Truth
from shardwise.run.auto.watch import losses_of, part_of
from shardwise.run.auto.wide import comparable
from shardwise.run.runtime.train.fork import forked

STEPS, CLOSE = 3, 1e-9


def trains_by_itself(own: UserProgram, plan: AutoPlan, truth: Truth) -> bool:
    """`own`: with one optimizer of torch, whose class and settings are made anew for what is split."""
    text = explained(plan)
    if re.search(r"^\s*(import|from) shardwise", text, re.MULTILINE):
        return False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "split.py"
        path.write_text(text)
        try:
            ranks = [
                losses for losses in forked(plan.degrees.ranks, lambda _: _losses(own.copy(), plan, path)) if losses
            ]
        except RuntimeError:
            return False
    ranks = [losses for losses in ranks if losses]
    found = [sum(each) / len(ranks) for each in zip(*ranks, strict=True)]
    wanted = truth.losses[:STEPS]
    return len(found) == STEPS and all(abs(a / b - 1) <= CLOSE for a, b in zip(found, wanted, strict=True))


def _losses(own: UserProgram, plan: AutoPlan, path: Path) -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh

    written = re.search(r"init_device_mesh\(device, (\(.*?\)), mesh_dim_names=(\(.*?\))\)", path.read_text())
    assert written is not None
    shape, names = (ast.literal_eval(each) for each in written.groups())
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    code, found = runpy.run_path(str(path)), list[float]()
    made = code["parallelize"](own.model, mesh)
    model = made[0] if plan.degrees.pp > 1 else made
    kind, settings = type(own.optimizers[0]), own.optimizers[0].defaults
    settings = {name: value for name, value in settings.items() if name in ("lr", "betas", "eps", "weight_decay")}
    parts: tuple[Any, ...] = (model, kind(model.parameters(), **settings, foreach=False))
    place = batch_mesh(mesh).get_local_rank()
    with draws_begin(), comparable(wide=own.dtype == "float64"):
        for each in own.batches[:STEPS]:
            part = part_of(each, place, plan.degrees.dp)
            if plan.degrees.pp > 1:
                losses = code["train_step"](made[1], own.step, parts, part)
                found += [sum(losses) / len(losses)] if losses else []
                continue
            with losses_of() as losses:
                own.step(*parts, part)
            found += losses
    return found
