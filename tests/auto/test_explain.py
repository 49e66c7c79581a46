"""The printed code runs without shardwise and trains as one process does."""

import runpy

import pytest
import torch
from small_models import ExpertBlock, FusedBlock, NormedBlock, WideNormBlock, program

from shardwise.auto.explain import explained
from shardwise.auto.plan import degrees_of
from shardwise.auto.prove import plan_of
from shardwise.auto.watch import losses_of, part_of
from shardwise.runtime.train.fork import forked


def without_clip(own):
    from torch import nn
    from torch.nn import functional as F

    def step(model: nn.Module, optimizer, tokens):
        F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    own.step = step
    return own


def ran_by_itself(own, plan, path):
    """Losses of every rank that sees some, with nothing but the printed file."""

    def rank(_):
        from torch.distributed.device_mesh import init_device_mesh

        axes = [axis for axis in ("pp", "dp", "cp", "tp") if axis in ("dp", "tp") or getattr(plan.degrees, axis) > 1]
        mesh = init_device_mesh("cpu", tuple(getattr(plan.degrees, axis) for axis in axes), mesh_dim_names=tuple(axes))
        code = runpy.run_path(str(path))
        made = code["parallelize"](own.model, mesh)
        model = made[0] if plan.degrees.pp > 1 else made
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        place, found = mesh["dp"].get_local_rank(), []
        for each in own.batches:
            part = part_of(each, place, plan.degrees.dp)
            if plan.degrees.pp > 1:
                losses = code["train_step"](made[1], own.step, (model, optimizer), part)
                found += [sum(losses) / len(losses)] if losses else []
            else:
                with losses_of() as losses:
                    own.step(model, optimizer, part)
                found += losses
        return found

    return [losses for losses in forked(plan.degrees.ranks, rank) if losses]


@pytest.mark.parametrize(
    ("block", "text"),
    [(NormedBlock, "fsdp=2,tp=2"), (FusedBlock, "pp=2,micro=4"), (FusedBlock, "cp=2"), (WideNormBlock, "tp=2,sp"),
     (ExpertBlock, "fsdp=2,ep=2"),
     *(pytest.param(*each, marks=pytest.mark.slow)
       for each in ((FusedBlock, "tp=2"), (NormedBlock, "tp=2,pp=2,micro=2")))],
)  # fmt: skip
def test_it_trains_as_one_process(block, text, tmp_path):
    tied = "pp" in text
    own = without_clip(program(block, tied=tied, dtype="float32"))
    plan = plan_of(own, degrees_of(text))
    path = tmp_path / "split.py"
    path.write_text(explained(plan))
    assert "shardwise" not in path.read_text().partition('"""\n')[2]
    plain = own.copy()
    with losses_of() as wanted:
        for each in plain.batches:
            plain.step(*plain.parts, each)
    ranks = ran_by_itself(own, plan, path)
    found = [sum(each) / len(ranks) for each in zip(*ranks, strict=True)]
    assert found == pytest.approx(wanted, rel=1e-5)
    assert wanted[0] != wanted[-1]


def test_simple_cuts_are_torchs_own_styles():
    class Plain(NormedBlock):
        def __init__(self) -> None:
            super().__init__()
            self.q_norm = self.k_norm = torch.nn.Identity()

    text = explained(plan_of(program(Plain, tied=False), degrees_of("tp=2")))
    assert '"q": ColwiseParallel()' in text
    assert '"o": RowwiseParallel()' in text
    assert "TorchFunctionMode" not in text
