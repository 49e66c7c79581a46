"""What an eager program copies to bring heads into the order that attention takes, and what it costs on a GPU."""

import csv
import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import Job, precision_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_of
from shardwise.work import work_of
from shardwise.work.case import training_of

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "evidence" / "timed" / "sequence-first-h200.csv"
NANOTRON = stack_of("nanotron")


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "evidence"))
    return importlib.import_module("sequence_first")


def moved(stack: Stack, hidden: int, tp: int = 1, kv_heads: int = 8) -> dict[str, tuple[float, float]]:
    """Bytes of each element-wise pass for one token."""
    model = model_from_shape("small", 2, hidden, 8, kv_heads, 4 * hidden, True, 512, tied=False)
    policies = Policies.of([Policy(tp=tp, sp=tp > 1)])
    work = work_of(
        training_of(model, Job(seq=64, global_batch=1, precision=precision_of("bf16")), stack),
        policies,
        every_stage=True,
    )
    return {p.name: (float(np.sum(p.forward_bytes)) / 64, float(np.sum(p.backward_bytes)) / 64)
            for p in work.kinds[0].pointwise}  # fmt: skip


def test_copies_are_those_the_layer_makes(layer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every copy of the forward pass, counted while a small layer runs."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Copies(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func._opname in ("clone", "cat"):
                self.elements += 2 * out.numel()
            return out

    monkeypatch.setattr(layer, "SEQ", 64)
    small = layer.Layer(64, 8, 128, lambda x, *_: x)  # the rotation's own pass is counted apart
    with torch.no_grad(), Copies() as seen:
        small.attended(torch.randn(64, 2, 64))
    assert 2.0 * seen.elements / (64 * 2) == moved(NANOTRON, 64)["heads copied"][0]


def test_copies_are_cut_by_tensor_parallelism_and_follow_the_heads() -> None:
    one, two = moved(NANOTRON, 64)["heads copied"], moved(NANOTRON, 64, tp=2)["heads copied"]
    assert one == (2 * 16 * 64, 2 * 12 * 64)
    assert two == pytest.approx([bytes_ / 2 for bytes_ in one])
    fewer = moved(NANOTRON, 64, kv_heads=2)["heads copied"]
    assert fewer == (2 * 64 * (2 * 1.5 + 4 * 0.5 + 2), 2 * 64 * (2 + 2 * 0.5 + 2 * 1.5))
    assert "heads copied" not in moved(NANOTRON.changed(copies_heads=False), 64)


def test_the_loss_weighs_as_it_did_on_an_h200(layer: ModuleType) -> None:
    """Its kernels are nearer to the memory's speed than the layer's, and one factor is fitted for both."""
    rows = list(csv.DictReader(MEASURED.read_text(encoding="utf-8").splitlines()))
    slower = {
        head: np.median([float(r["rest_s"]) / float(r["rest_said_s"]) for r in rows if ("head" in r["part"]) == head])
        for head in (False, True)
    }
    assert len(rows) == 16
    assert slower[False] == pytest.approx(1.87, abs=0.01)
    assert slower[True] == pytest.approx(1.47, abs=0.01)
    assert NANOTRON.loss.loss_passes == pytest.approx(layer.LOSS_BYTES / 2 * slower[True] / slower[False], abs=0.5)
    assert NANOTRON.kernels.pointwise_passes == pytest.approx(slower[False], rel=0.1)
