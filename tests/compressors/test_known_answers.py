"""Errors and bytes measured by others or given by a formula."""

import pytest

from shardwise.plugins.compressors import Draw, compressor
from shardwise.plugins.compressors._bits import pack, packed_bytes, unpack
from shardwise.plugins.compressors._contracted import contracted

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be compressed")
D = 100_000


def error(name: str, **settings) -> float:
    torch.manual_seed(0)
    row, found = torch.randn(D), compressor(name, **settings)
    out = found.decode(found.encode(row, Draw()), D, Draw())
    return float(((out - row) ** 2).sum() / (row**2).sum())


@pytest.mark.parametrize(
    ("name", "settings", "known"),
    [
        ("top_k", {"ratio": 0.01}, 0.915), ("top_k", {"ratio": 0.05}, 0.721), ("rand_k", {"ratio": 0.05}, 19.0),
        ("sign", {}, 0.363), ("qsgd", {"steps": 1}, 16.8), ("qsgd", {"steps": 4}, 3.51), ("natural", {}, 0.081),
    ],
)  # fmt: skip
def test_error_on_normal_numbers(name, settings, known):
    assert error(name, **settings) == pytest.approx(known, rel=0.03)


def test_bytes_per_number():
    assert compressor("sign").wire_bytes(D) / D == pytest.approx(0.126, abs=0.001)
    assert compressor("natural").wire_bytes(D) / D == 1.125
    assert compressor("block_top_k", ratio=0.01).wire_bytes(D) / D == pytest.approx(0.04, rel=0.05)
    assert compressor("terngrad").wire_bytes(D) / D == pytest.approx(0.251, abs=0.001)


def test_five_levels_of_six_tenths():
    row = torch.tensor([0.6] * 50_000 + [1.0])
    found = compressor("random_quantization", levels=5, block=2**17)
    out = found.decode(found.encode(row, Draw()), len(row), Draw())[:-1]
    assert sorted(set(out.tolist())) == [0.5, 0.75]
    assert float((out == 0.75).float().mean()) == pytest.approx(0.4, abs=0.01)


def test_sampled_finds_what_exact_finds():
    row = torch.randn(D) ** 3
    outs = []
    for name in ("top_k", "sampled_top_k"):
        found = compressor(name, ratio=0.01)
        outs.append(found.decode(found.encode(row, Draw()), D, Draw()))
    assert torch.equal(*outs)


def test_block_top_k_keeps_nearly_the_energy_of_exact():
    exact, blocked = 1 - error("top_k", ratio=0.01), 1 - error("block_top_k", ratio=0.01)
    assert blocked / exact > 0.98


def test_unbiased_ones_contract_when_scaled():
    row, found = torch.randn(2000), contracted(compressor("qsgd", steps=1))
    delta = found.delta(2000)
    errors = [((found.decode(found.encode(row, Draw(step=t)), 2000, Draw(step=t)) - row) ** 2).sum() for t in range(50)]
    assert float(torch.stack(errors).mean()) <= (1 - delta) * float((row**2).sum()) * 1.02
    assert contracted(compressor("top_k")) == compressor("top_k")


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 8])
def test_packing_is_lossless(bits):
    codes = torch.arange(101) % 2**bits
    packed = pack(codes, bits)
    assert packed.numel() == packed_bytes(101, bits)
    assert torch.equal(unpack(packed, bits, 101), codes.int())


def test_draws_are_uniform_and_apart():
    values = Draw(seed=1).uniform(D)
    assert float(values.mean()) == pytest.approx(0.5, abs=0.005)
    assert float(values.var()) == pytest.approx(1 / 12, rel=0.02)
    others = [Draw(seed=2), Draw(seed=1, step=1), Draw(seed=1, worker=1), Draw(seed=1, purpose=1)]
    for other in others:
        both = torch.stack([values, other.uniform(D)])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 0.02
    assert torch.equal(Draw(worker=3).shared().bits(9), Draw(worker=5).shared().bits(9))
