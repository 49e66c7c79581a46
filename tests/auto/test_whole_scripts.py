"""Training scripts as people have them, without functions for their parts: run from top to bottom, unchanged."""

import os

import pytest
from small_models import WORDS

from shardwise.run.auto.answer import answered
from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.prove import plan_of, proven
from shardwise.run.auto.script import opened, program_in, source_in
from shardwise.run.auto.truth import truth_of
from shardwise.run.trace.script import ScriptError
from shardwise.spec.load import cluster_of

MODEL = f"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (-1, 8)).transpose(1, 2) for each in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.n2(x))))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding({WORDS}, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(32, {WORDS}, bias=False)

    def forward(self, tokens, labels=None, num_items_in_batch=None):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        if labels is None:
            return logits
        how = "mean" if num_items_in_batch is None else "sum"
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=how)
        return loss if num_items_in_batch is None else loss / num_items_in_batch

rows = torch.randint(0, {WORDS}, (64, 12))
loader = DataLoader(TensorDataset(rows), batch_size=8, shuffle=True)
"""
LOOP = (
    MODEL
    + """
model = torch.compile(Words().cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
scaler = torch.amp.GradScaler("cuda")
for epoch in range(4):
    for number, (tokens,) in enumerate(loader):
        tokens = tokens.cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(tokens)
            loss = nn.CrossEntropyLoss()(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()) / 2
        scaler.scale(loss).backward()
        if number % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            warm.step()
"""
)
ADVERSARIES = (
    MODEL
    + """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.maker, self.judge = Words(), Words()

both = Both()
optimizers = [torch.optim.Adam(each.parameters(), 1e-3) for each in (both.maker, both.judge)]
for epoch in range(4):
    for (tokens,) in loader:
        noise = torch.randn(len(tokens), 12, 1)
        for own, other, optimizer in ((both.maker, both.judge, optimizers[0]), (both.judge, both.maker, optimizers[1])):
            (own(tokens) - other(tokens).detach() + noise).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
"""
)
COUNTED = (
    MODEL
    + """
model = Words()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for (tokens,) in loader:
        labels = tokens.masked_fill(tokens < tokens[:, :1], -100)
        model(tokens, labels=labels, num_items_in_batch=(labels != -100).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
)
CLOSURE = (
    MODEL
    + """
model = Words()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (tokens,) in loader:
    def closure():
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens.masked_fill(tokens < 5, -100))
        loss.backward()
        return loss
    optimizer.step(closure)
"""
)


def proof(path, text, split, steps=3):
    path.write_text(text)
    with opened(path) as (script, names):
        program = program_in(script, names, steps, "float64")
        return proven(program, plan_of(program, degrees_of(split)), truth_of(program))


@pytest.mark.parametrize(
    ("text", "split"),
    [(LOOP, "fsdp=2"), (LOOP, "tp=2"), (ADVERSARIES, "fsdp=2"), (COUNTED, "fsdp=2"), (CLOSURE, "fsdp=2"),
     pytest.param(LOOP, "fsdp=2,tp=2", marks=pytest.mark.slow)],
    ids=["loop-fsdp", "loop-tp", "adversaries", "counted", "closure", "loop-both"],
)  # fmt: skip
def test_a_script_is_split_as_it_is(text, split, tmp_path):
    found = proof(tmp_path / "train.py", text, split)
    assert found.equal, found.why
    assert found.compared == found.trainable > 0
    assert found.gradient_gap < 1e-9
    assert found.checkpoint_equal
    assert found.messages_equal is not False
    assert found.state_gap == 0.0


def test_stages_need_the_functions(tmp_path):
    assert "build, batch and step" in proof(tmp_path / "train.py", COUNTED, "pp=2").why


def test_weights_that_nobody_seeded_are_named(tmp_path):
    text = LOOP.replace("model = torch", "torch.seed()\nmodel = torch")
    assert "seed what draws them" in proof(tmp_path / "train.py", text, "fsdp=2").why


def test_a_wrong_gradient_of_one_rank_does_not_hold(tmp_path):
    spoils = f"""
def spoil(model):
    import os
    if os.getpid() != {os.getpid()}:
        next(model.parameters()).grad.mul_(1.001)

rows ="""
    text = LOOP.replace("        if number % 2:", "        spoil(model)\n        if number % 2:").replace(
        "rows =", spoils
    )
    found = proof(tmp_path / "train.py", text, "tp=2")
    assert not found.equal
    assert "gradient" in found.why


def test_a_script_that_trains_nothing_is_refused(tmp_path):
    with pytest.raises(ScriptError, match="0 optimizer steps") as told:
        proof(tmp_path / "train.py", "print('nothing')", "fsdp=2")
    assert "build()" in str(told.value)


def test_auto_plans_proves_and_trains_it(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    with opened(path) as (script, names):
        found = answered(source_in(script, names), cluster_of("2xh100"), [], 4, lambda _: None)
    assert found.proof.equal, found.proof.why
    assert len(found.losses) == 4
    assert found.losses[-1] < found.losses[0]
