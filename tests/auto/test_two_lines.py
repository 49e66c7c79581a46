"""Two lines in a user's own script: the plan of `auto`, and the model split by it, on ranks that torchrun starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_models import NormedBlock, Tiny, batch, program
from torch import nn

import shardwise
from shardwise.run.auto.choose import chosen
from shardwise.run.auto.weightless import without_weights
from shardwise.spec.load import cluster_of

ROOT = Path(__file__).resolve().parents[2]


def model(blocks=4):
    torch.manual_seed(0)
    return Tiny(NormedBlock, blocks=blocks)


def test_it_is_the_plan_of_the_verb():
    own = model()
    before = {name: p.detach().clone() for name, p in own.named_parameters()}
    plan = shardwise.auto_plan(own, batch(), on="2xh100", fix=["tp=2"])
    assert plan == chosen(program(NormedBlock, blocks=4), cluster_of("2xh100"), ["tp=2", "pp=1,cp=1"]).plan
    assert all(torch.equal(p, before[name]) for name, p in own.named_parameters())
    assert own.blocks[0].q.weight.dtype == torch.float32


def test_stages_are_never_in_it():
    degrees = shardwise.auto_plan(model(), batch(), on="4xh100").degrees
    assert (degrees.pp, degrees.cp, degrees.ranks) == (1, 1, 4)


@pytest.mark.parametrize("wrapped", [lambda x: x, lambda x: (x,), lambda x: {"tokens": x}])
def test_a_batch_is_given_as_the_model_takes_it(wrapped):
    assert shardwise.auto_plan(model(), wrapped(batch()), on="2xh100", fix=["tp=2"]).samples == 8


def test_a_loss_of_ones_own():
    def loss(own, tokens):
        return own(tokens).square().mean()

    assert shardwise.auto_plan(model(), batch(), on="2xh100", fix=["tp=2"], loss=loss).degrees.tp == 2
    with pytest.raises(ValueError, match="it has no parameters"):
        shardwise.auto_plan(nn.Identity(), batch(), on="2xh100")
    own = model()
    own.register_forward_hook(lambda *_: "words")
    with pytest.raises(ValueError, match="the model returns no tensor; write loss="):
        shardwise.auto_plan(own, batch(), on="2xh100")


def test_a_model_without_weights_is_planned_and_one_without_buffers_is_told(monkeypatch):
    with without_weights():
        bare = model()
    monkeypatch.setattr("shardwise.run.auto.answer.fits_with_values", lambda *_: False)
    plan = shardwise.auto_plan(bare, batch(), on="2xh100", fix=["tp=2"])
    assert plan.kinds[0].cuts
    assert all(p.is_meta for p in bare.parameters()), "the model stays as it is"
    bare.register_buffer("angles", torch.zeros(2, device="meta"))
    with pytest.raises(ValueError, match=r"the buffer angles has no values; build it"):
        shardwise.auto_plan(bare, batch(), on="2xh100")


@pytest.mark.parametrize("fix", ["tp=2", "tp=1"])
def test_the_example_trains_on_two_ranks(fix):
    """As one process does: the loss of its fifth step is that of the plain loop."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "examples/auto_two_lines.py"]
    environment = {**os.environ, "FIX": fix, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-8000:]
    split, loss = re.search(r"(\w+ 2): loss ([\d.]+)", ended.stdout).groups()
    assert split == {"tp=2": "tp 2", "tp=1": "fsdp 2"}[fix]
    assert float(loss) == pytest.approx(_plain_loss(), abs=2e-5)


def _plain_loss():
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from auto_gpt import GPT, SAMPLES, TOKENS, WORDS
    finally:
        sys.path.remove(str(ROOT / "examples"))
    torch.manual_seed(0)
    own, tokens = GPT(), torch.randint(0, WORDS, (SAMPLES, TOKENS))
    optimizer = torch.optim.AdamW(own.parameters(), lr=1e-2)
    for _ in range(5):
        loss = nn.functional.cross_entropy(own(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()
