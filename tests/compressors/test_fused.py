"""Kernels give the bits of torch: on a GPU where there is one, else through Triton's interpreter."""

import sys
from pathlib import Path

import pytest

from shardwise.compressors import _fused, compressor
from shardwise.compressors.sign import Sign

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be compressed")
pytest.importorskip("triton", reason="Triton is not installed: there are no kernels to run or to interpret")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy about infinities, in the interpreter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import _sync_gpu_checks as checks  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = (("sign", {"block": 128}), ("int4", {"group": 64}), ("block_top_k", {"block": 128, "ratio": 0.05}))


@pytest.fixture(autouse=True)
def triton_for_the_device(monkeypatch):
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    _fused._has_triton.cache_clear()
    yield
    _fused._has_triton.cache_clear()


@pytest.mark.parametrize(("name", "settings"), SMALL)
@pytest.mark.parametrize("kind", checks.KINDS)
@pytest.mark.parametrize("d", [33, 300])
def test_bits(name, settings, kind, d):
    draw = torch.Generator().manual_seed(d)
    row, held = (checks.KINDS[kind](torch.randn(d, generator=draw)) for _ in range(2))
    assert checks.differs(compressor(name, **settings), row, held, DEVICE) == []


def test_the_check_can_fail():
    class Wrong(Sign):
        def decode(self, payload, d, draw):
            return super().decode(payload, d, draw) * (1 + 2**-23)

    row, held = torch.randn(300), torch.randn(300)
    assert checks.differs(Wrong(128), row, held, DEVICE) != []


@pytest.mark.parametrize("strategy", checks.STRATEGIES)
@pytest.mark.parametrize("name", [name for name, _ in SMALL])
def test_strategies_use_them_and_end_with_the_same_bits(strategy, name, monkeypatch):
    noise = torch.randn(2, 3, 200)
    codec = type(compressor(name))
    used, kernels = [], codec.kernels
    monkeypatch.setattr(codec, "kernels", lambda self, device: used.append(device) or kernels(self, device))
    fused = checks.ended(strategy, name, noise.to(DEVICE))
    assert used
    assert kernels(codec(), DEVICE) is not None
    monkeypatch.setattr(codec, "kernels", lambda *_: None)
    assert checks.equal_bits(fused, checks.ended(strategy, name, noise))
