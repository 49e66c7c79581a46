"""The printed code runs without shardwise and trains as one process does."""

import ast
import re
import runpy

import pytest
import torch
from small_models import (
    BiasedBlock,
    ChosenBlock,
    EachBlock,
    ExpertBlock,
    FusedBlock,
    NormedBlock,
    WideNormBlock,
    program,
)

from shardwise.run.auto.explain import explained
from shardwise.run.auto.meshes import batch_mesh
from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.prove import plan_of
from shardwise.run.auto.watch import losses_of, part_of
from shardwise.run.runtime.train.fork import forked


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

        written = re.search(r"init_device_mesh\(device, (\(.*?\)), mesh_dim_names=(\(.*?\))\)", path.read_text())
        shape, names = (ast.literal_eval(each) for each in written.groups())
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        code = runpy.run_path(str(path))
        made = code["parallelize"](own.model, mesh)
        model = made[0] if plan.degrees.pp > 1 else made
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        if plan.degrees.offload == "both":
            code["state_away"](optimizer)
        place, found = batch_mesh(mesh).get_local_rank(), []
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


def padded(own):
    """The number of tokens of a sample that count differs."""
    for tokens in own.batches:
        for sample, row in enumerate(tokens):
            row[sample + 4 :] = 0

    def step(model, optimizer, tokens):
        from torch.nn import functional as F

        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten(), ignore_index=0).backward()
        optimizer.step()
        optimizer.zero_grad()

    own.step = step
    return own


@pytest.mark.parametrize("text", ["fsdp=2", "dp=2,fsdp=2"])
def test_it_counts_the_tokens_of_all_ranks(text, tmp_path):
    trains_as_one_process(padded(program(FusedBlock, dtype="float32")), text, tmp_path)


@pytest.mark.parametrize(
    ("block", "text"),
    [(NormedBlock, "fsdp=2,tp=2"), (FusedBlock, "pp=2,micro=4"), (FusedBlock, "cp=2"), (WideNormBlock, "tp=2,sp"),
     (ExpertBlock, "fsdp=2,ep=2"), (ChosenBlock, "tp=2"), (ChosenBlock, "cp=2"), (BiasedBlock, "tp=2"),
     (EachBlock, "fsdp=2,ep=2"), (FusedBlock, "pp=2,vpp=2,micro=2"),
     *(pytest.param(*each, marks=pytest.mark.slow)
       for each in ((FusedBlock, "tp=2"), (NormedBlock, "tp=2,pp=2,micro=2"), (NormedBlock, "dp=2,fsdp=2"),
                    (FusedBlock, "fsdp=2,offload=both"), (FusedBlock, "pp=2,micro=4,schedule=zero_bubble_h1"),
                    (NormedBlock, "dp=2,fsdp=2,pp=2,micro=2")))],
)  # fmt: skip
def test_it_trains_as_one_process(block, text, tmp_path):
    own = without_clip(program(block, tied="pp" in text, dtype="float32", blocks=4 if "vpp" in text else 2))
    trains_as_one_process(own, text, tmp_path)


def trains_as_one_process(own, text, tmp_path):
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
