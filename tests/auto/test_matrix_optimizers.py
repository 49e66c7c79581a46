"""torch.optim.Muon on a model that `auto` has split: whole matrices, or a refusal."""

import copy
import inspect

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.optim import _muon  # noqa: E402

from shardwise.run.auto.matrices import gather_matrices, whole_matrices  # noqa: E402
from shardwise.run.auto.own_script import _PIECES, _refuse_replaced  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 20, bias=False), nn.Linear(20, 7, bias=False)).double()


def step(net: nn.Module) -> None:
    optimizer = torch.optim.Muon(net.parameters(), lr=0.1, weight_decay=0.1)
    for seed in (1, 2):
        x = torch.randn(8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_shards_of_rows_are_gathered() -> None:
    """Equal rows (20 over 2 ranks) and unequal ones (7), against one process; without the gather they differ."""

    def work(_: int) -> list[list[float]]:
        mesh, found = init_device_mesh("cpu", (2,)), []
        _muon._zeropower_via_newtonschulz = inspect.unwrap(_muon._zeropower_via_newtonschulz)  # another test gathered
        for gathers in (False, True):
            net = model()
            fully_shard(net, mesh=mesh)
            if gathers:
                gather_matrices()
                gather_matrices()
            step(net)
            found.append([p.full_tensor().flatten().tolist() for p in net.parameters()])
        return found

    alone = copy.deepcopy(model())
    step(alone)
    plain = [p.detach().flatten() for p in alone.parameters()]
    for rank in forked(2, work):
        without, gathered = (
            max(float((torch.tensor(a).double() - b).abs().max()) for a, b in zip(each, plain, strict=True))
            for each in rank
        )
        assert gathered < 1e-6 < without


def test_pieces_of_tensor_parallelism_are_refused() -> None:
    net = model()
    optimizer = torch.optim.Muon(net[1].parameters())
    assert whole_matrices(net, [optimizer, torch.optim.AdamW(net[0].parameters())]) == {"1.weight"}
    _refuse_replaced(optimizer)
    _PIECES[net[1].weight] = True
    with pytest.raises(ValueError, match=r"Muon computes with whole matrices, and tp has cut these; write fix="):
        _refuse_replaced(optimizer)
