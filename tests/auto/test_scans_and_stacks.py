"""Scans cut by channels, and pipeline stages of models that are no chain of blocks: two stacks, skips, deep losses."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from auto.small_models import SAMPLES, TOKENS, WIDTH, WORDS, FusedBlock, Tiny, batch, step
from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.program import program_of
from shardwise.run.auto.prove import plan_of, proven
from shardwise.run.auto.truth import truth_of

CHANNELS, STATES = 16, 4


class GatedNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(CHANNELS))
        self.epsilon = 1e-6

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        x = x * F.silu(gate)
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


class ScanBlock(nn.Module):
    """A convolution of single channels that reads its weight by hand, states that all channels share, and a norm over
    all channels."""

    def __init__(self, *, chosen: bool = False) -> None:
        super().__init__()
        self.before, self.norm = nn.LayerNorm(WIDTH), GatedNorm()
        states = 0 if chosen else 2 * STATES
        self.mixed = CHANNELS + states
        self.into = nn.Linear(WIDTH, self.mixed + CHANNELS)
        self.conv = nn.Conv1d(self.mixed, self.mixed, 3, groups=self.mixed)
        self.states = nn.Linear(CHANNELS, 2 * STATES) if chosen else None
        self.decay = nn.Parameter(torch.rand(CHANNELS, STATES))
        self.out = nn.Linear(CHANNELS, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner, gate = self.into(self.before(x)).split([self.mixed, CHANNELS], -1)
        inner = F.conv1d(F.pad(inner.transpose(1, 2), (2, 0)), self.conv.weight, self.conv.bias, groups=inner.shape[-1])
        inner = F.silu(inner).transpose(1, 2)
        if self.states is not None:
            keys, values = self.states(inner).chunk(2, -1)
        else:
            inner, keys, values = inner.split([CHANNELS, STATES, STATES], -1)
        state, made = torch.zeros(*inner.shape[::2], STATES, dtype=x.dtype), []
        for token in range(x.shape[1]):
            state = state * torch.exp(-self.decay) + inner[:, token, :, None] * keys[:, token, None]
            made.append((state * values[:, token, None]).sum(-1))
        return x + self.out(self.norm(torch.stack(made, 1), gate))


class ChosenBlock(ScanBlock):
    """States made of all channels."""

    def __init__(self) -> None:
        super().__init__(chosen=True)


def proof(make, text, run=step):
    own = program_of(lambda: built(make), batch, run, 2, "float64")
    plan = plan_of(own, degrees_of(text))
    return plan, proven(own, plan, truth_of(own))


def built(make):
    model = make()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(("block", "sums"), [(ScanBlock, ()), (ChosenBlock, ("states",))])
def test_a_scan_is_cut_by_its_channels(block, sums):
    plan, found = proof(lambda: Tiny(block), "tp=2")
    assert found.why == ""
    assert found.messages_equal
    (cut,) = plan.kinds[0].cuts
    assert {stack.parameter for stack in cut.stacks} == {"conv.weight", "conv.bias", "decay"}
    assert cut.sums == sums
    assert [norm.gate for norm in cut.norms] == ["before"]


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
