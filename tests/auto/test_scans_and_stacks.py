"""Scans cut by channels, and pipeline stages of models beyond a chain of blocks: two stacks, skips, deep losses."""

import pytest
import torch
import torch.nn.functional as F
from small_models import SAMPLES, TOKENS, WIDTH, WORDS, ChosenBlock, FusedBlock, ScanBlock, Tiny, batch, step
from torch import Tensor, nn

from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.program import program_of
from shardwise.run.auto.prove import plan_of, proven
from shardwise.run.auto.truth import truth_of


def proof(make, text, run=step):
    own = program_of(lambda: built(make), batch, run, 2, "float64")
    plan = plan_of(own, degrees_of(text))
    return plan, proven(own, plan, truth_of(own))


def built(make):
    model = make()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(("block", "sums"), [(ScanBlock, ()), (ChosenBlock, ("scan.states",))])
def test_a_scan_is_cut_by_its_channels(block, sums):
    plan, found = proof(lambda: Tiny(block), "tp=2")
    assert found.why == ""
    assert found.messages_equal
    (cut,) = plan.kinds[0].cuts
    assert {stack.parameter for stack in cut.stacks} == {"scan.conv.weight", "scan.conv.bias", "scan.decay"}
    assert cut.sums == sums
    assert [norm.gate for norm in cut.norms] == ["before"]


def test_a_scan_gets_the_tokens_of_all_ranks():
    plan, found = proof(lambda: Tiny(ChosenBlock), "cp=2")
    assert found.why == ""
    assert found.messages_equal
    assert list(plan.kinds[0].joins) == ["scan"]


class Reader(nn.Module):
    """Takes what the other stack has made, in every block."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.inside = nn.Linear(WIDTH, WIDTH), FusedBlock()

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return self.inside(x) + self.read(other).mean(1, keepdim=True)


class TwoStacks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.first = nn.ModuleList(FusedBlock() for _ in range(2))
        self.second = nn.ModuleList(Reader() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.first:
            x = block(x)
        x, own = self.norm(x), self.table(tokens.flip(1))[:, : TOKENS // 2]
        for block in self.second:
            own = block(own, x)
        return self.head(own)


class Skipping(nn.Module):
    """The last block reads the embedding and the first block's output too, and the loss a middle one."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(FusedBlock() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        first = self.blocks[0](x)
        middle = self.blocks[1](first)
        last = self.blocks[3](self.blocks[2](middle) + first + x)
        return self.head(last) + 0.5 * self.head(middle)


def pooled(model, optimizer, tokens):
    F.cross_entropy(model(tokens).mean(1), tokens[:, 0]).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(("make", "text"), [(TwoStacks, "pp=2"), (TwoStacks, "pp=4"), (Skipping, "pp=2"),
                                            (Skipping, "pp=2,vpp=2")])  # fmt: skip
def test_stages_hand_on_what_later_blocks_read(make, text):
    plan, found = proof(make, text, pooled)
    assert found.why == ""
    assert found.messages_equal
    several = max(len(plan.crossing(stage)) for stage in range(1, len(plan.stages))) > 1
    assert several == ((make, text) != (TwoStacks, "pp=2"))
    assert all(handed.elements % SAMPLES == 0 for handed in plan.handed)
