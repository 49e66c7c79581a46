"""Weights that several blocks use, scalars, and models without a list of blocks: split, and equal to one process."""

import pytest
import torch
import torch.nn.functional as F
from small_models import SAMPLES, WIDTH, WORDS, FusedBlock, PlainAttention, Tiny, WideBlock, batch, step
from torch import Tensor, nn

from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.program import program_of
from shardwise.run.auto.prove import plan_of, proven
from shardwise.run.auto.truth import truth_of


class OneAttention(Tiny):
    """All blocks attend with one module."""

    def __init__(self) -> None:
        super().__init__(WideBlock, blocks=3)
        attention = PlainAttention()
        for block in self.blocks:
            block.attention = attention


class OneWeight(Tiny):
    """Modules of their own, which share a weight."""

    def __init__(self) -> None:
        super().__init__(WideBlock, blocks=3)
        for block in self.blocks:
            block.feed[0].weight = self.blocks[0].feed[0].weight


class InTurn(Tiny):
    def __init__(self) -> None:
        super().__init__(WideBlock)
        self.blocks.extend(list(self.blocks))


class OneBlock(nn.Module):
    """One block, called four times; no list of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.block, self.head = nn.Embedding(WORDS, WIDTH), WideBlock(), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for _ in range(4):
            x = self.block(x)
        return self.head(x) * 2


class Scaled(Tiny):
    def __init__(self) -> None:
        super().__init__(FusedBlock)
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * self.scale.exp()


class Plain(nn.Module):
    """No module repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.up, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 24), nn.Linear(24, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(F.relu(self.up(self.words(tokens)))) * 2


class EveryHead(Tiny):
    """The head reads what every block makes."""

    def __init__(self) -> None:
        super().__init__(WideBlock)

    def forward(self, tokens: Tensor) -> Tensor:
        x, made = self.words(tokens), []
        for block in self.blocks:
            x = block(x)
            made.append(self.head(self.norm(x)))
        return torch.stack(made).mean(0)


def proof(model, text, own_step=step):
    def build():
        made = model()
        return made, torch.optim.AdamW(made.parameters(), lr=1e-2)

    own = program_of(build, batch, own_step, 2, "float64")
    return proven(own, plan_of(own, degrees_of(text)), truth_of(own))


@pytest.mark.parametrize(
    ("model", "text"),
    [(OneAttention, "tp=2"), (OneAttention, "fsdp=2"), (OneWeight, "fsdp=2,tp=2"), (InTurn, "fsdp=2"),
     (OneBlock, "tp=2"), (OneBlock, "fsdp=2"), (Scaled, "fsdp=2"), (Scaled, "dp=2,fsdp=2"), (Plain, "fsdp=2"),
     (EveryHead, "tp=2")],
)  # fmt: skip
def test_a_split_equals_one_process(model, text):
    found = proof(model, text)
    assert found.why == ""
    assert found.compared == found.trainable > 0
    assert found.gradient_gap < 1e-9
    assert found.messages_equal
    assert found.state_gap == 0.0
    assert found.memory_gap < 0.03


def test_messages_of_a_step_that_adds_up_gradients_are_foretold():
    def halves(model, optimizer, tokens):
        for part in tokens.chunk(2):
            loss = F.cross_entropy(model(part)[:, :-1].flatten(0, 1), part[:, 1:].flatten())
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    assert SAMPLES % 4 == 0
    found = proof(lambda: Tiny(FusedBlock), "fsdp=2,tp=2", halves)
    assert found.why == ""
    assert found.messages_equal


def test_what_repeats_nothing_has_no_stages():
    assert proof(Plain, "pp=2").why == "no module repeats"
