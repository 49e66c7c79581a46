"""The printed code runs without shardwise and trains as one process does."""

import runpy

import pytest
import torch
from small_models import FusedBlock, NormedBlock, program

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


@pytest.mark.parametrize(("block", "text"), [(FusedBlock, "tp=2"), (NormedBlock, "fsdp=2,tp=2")])
def test_it_trains_as_one_process(block, text, tmp_path):
    own = without_clip(program(block, tied=False, dtype="float32"))
    plan = plan_of(own, degrees_of(text))
    path = tmp_path / "split.py"
    path.write_text(explained(plan))
    assert "shardwise" not in path.read_text().partition('"""\n')[2]
    plain = own.copy()
    with losses_of() as wanted:
        for each in plain.batches:
            plain.step(*plain.parts, each)

    def rank(_):
        from torch.distributed.device_mesh import init_device_mesh

        degrees = plan.degrees
        mesh = init_device_mesh("cpu", (degrees.dp, degrees.tp), mesh_dim_names=("dp", "tp"))
        model = runpy.run_path(str(path))["parallelize"](own.model, mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        with losses_of() as losses:
            for each in own.batches:
                own.step(model, optimizer, part_of(each, mesh["dp"].get_local_rank(), degrees.dp))
        return losses

    ranks = forked(plan.degrees.ranks, rank)
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


def test_stages_cannot_be_said_in_code_beside_the_step():
    with pytest.raises(ValueError, match="changes the step"):
        explained(plan_of(program(FusedBlock), degrees_of("pp=2")))
