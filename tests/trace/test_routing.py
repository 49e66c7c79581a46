"""Experts as people write them: whichever way the tokens of each are found, every expert gets its share."""

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.trace.capture import traced  # noqa: E402
from shardwise.run.trace.events import Product  # noqa: E402

TOKENS, EXPERTS, TAKEN = 64, 8, 2
LAYER = """
import torch
import torch.nn.functional as F
from torch import nn

EXPERTS, TAKEN = 8, 2

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(EXPERTS))

    def forward(self, x):
        weight, chosen = torch.topk(self.gate(x), TAKEN, dim=-1)
        out = torch.zeros_like(x)
        def add(number, token):
            out[token] += self.experts[number](x[token])
{loop}
        return out

def build():
    model = Experts().cuda()
    return model, torch.optim.AdamW(model.parameters())

def step(model, optimizer):
    model(torch.randn(64, 16, device="cuda")).sum().backward()
    optimizer.step()
    assert all(p.grad is not None for p in model.experts.parameters())
    optimizer.zero_grad()
"""
LOOPS = {
    "where": "for n in range(EXPERTS):\n    add(n, torch.where(chosen == n)[0])",
    "a mask": "for n in range(EXPERTS):\n    mask = (chosen == n).any(-1)\n    if mask.any():\n        add(n, mask)",
    "bincount": "counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()\n"
                "for n in range(EXPERTS):\n    if counts[n]:\n        add(n, torch.where(chosen == n)[0])",
    "unique": "for n in torch.unique(chosen):\n    add(n, (chosen == n).nonzero(as_tuple=True)[0])",
    "hit": "hot = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)\n"
           "for n in (hot.sum(dim=(-1, -2)) > 0).nonzero():\n    add(n, torch.where(hot[n].squeeze(0))[1])",
    "split": "order = chosen.flatten().argsort()\nsizes = torch.histc(chosen.float(), EXPERTS, 0, EXPERTS - 1).int()\n"
             "for n, token in enumerate((order // TAKEN).split(sizes.tolist())):\n    add(n, token)",
}  # fmt: skip


def captured(tmp_path, loop: str):
    path = tmp_path / "experts.py"
    path.write_text(LAYER.format(loop="\n".join(f"        {line}" for line in loop.splitlines())))
    return traced(path, 1)


def rows_of_experts(found) -> list[int]:
    works = [event.work for event in found.events if event.phase == "forward" and isinstance(event.work, Product)]
    return [work.m for work in works if work.n == 16]


@pytest.mark.parametrize("way", LOOPS)
def test_every_expert_gets_its_share(way, tmp_path) -> None:
    assert rows_of_experts(captured(tmp_path, LOOPS[way])) == [TOKENS * TAKEN // EXPERTS] * EXPERTS


def test_one_expert_a_token_by_the_largest_score(tmp_path) -> None:
    for largest in ("self.gate(x).argmax(-1)", "self.gate(x).max(-1)[1]"):
        loop = f"best = {largest}\nfor n in range(EXPERTS):\n    add(n, (best == n).nonzero().squeeze(-1))"
        assert rows_of_experts(captured(tmp_path, loop)) == [TOKENS // EXPERTS] * EXPERTS


def test_shares_that_do_not_divide_add_up(tmp_path) -> None:
    loop = (
        "few = chosen[:50].flatten()\nsizes = torch.bincount(few, minlength=EXPERTS).tolist()\n"
        "for n, token in enumerate((few.argsort() // TAKEN).split(sizes)):\n    add(n, token)"
    )
    rows = rows_of_experts(captured(tmp_path, loop))
    assert sum(rows) == 100
    assert max(rows) - min(rows) == 1
