"""What messages hold, bit by bit: the same by any order of adding, and stated for numbers that are not finite."""

import pytest

from shardwise.plugins.compressors import Draw, _fused, compressor
from shardwise.plugins.compressors._sizes import mean_sizes
from shardwise.plugins.compressors._words import pack_words, unpack_words, word_bytes

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be compressed")
CPU = torch.device("cpu")


def sent(name: str, row, **settings):
    found = compressor(name, **settings)
    payload = found.encode(row, Draw())
    return payload, found.decode(payload, row.numel(), Draw())


@pytest.mark.parametrize("scale", [1.0, 1e-42, 1e35])
def test_mean_size_does_not_depend_on_the_order(scale):
    row = torch.randn(5, 4096) ** 3 * scale
    held = torch.full((5,), 4096.0)
    found = mean_sizes(row, held)
    for _ in range(3):
        assert torch.equal(mean_sizes(row[:, torch.randperm(4096)], held), found)
    exact = row.double().abs().mean(dim=1)
    assert float(((found.double() - exact) / exact).abs().max()) < (2**-3 if scale == 1e-42 else 2**-18)


@pytest.mark.parametrize("bits", [1, 4])
def test_words_are_lossless(bits):
    codes = (torch.arange(101) * 7 % 2**bits).int()
    words = pack_words(codes, bits)
    assert words.nbytes == word_bytes(101, bits)
    assert torch.equal(unpack_words(words, bits, 101), codes)


def test_sign_words_hold_the_first_number_lowest():
    (words, scale), out = sent("sign", torch.tensor([1.0, -3.0, 0.0, -0.0]))
    assert words.tolist() == [0b1101]
    assert scale.tolist() == [1.0]
    assert out.tolist() == [1.0, -1.0, 1.0, 1.0]


@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_numbers_that_are_not_finite_are_seen_by_all(wrong):
    row = torch.randn(600)
    row[300] = wrong
    _, out = sent("sign", row, block=256)
    assert out[256:512].abs().isinf().all()
    assert out[:256].isfinite().all()
    _, out = sent("int4", row)
    assert out[256:384].isnan().all()
    assert out[:256].isfinite().all()
    _, out = sent("block_top_k", row, block=256)
    assert str(float(out[300])) == str(wrong)
    assert out[:256].isfinite().all()


def test_int4_is_the_nearest_of_fifteen_levels():
    row = torch.tensor([7.0, -7.0, 0.4, -0.6, 2.5, 3.5, -1e-9])
    (words, step), out = sent("int4", row)
    assert step.tolist() == [1.0]
    assert out.tolist() == [7.0, -7.0, 0.0, -1.0, 2.0, 4.0, 0.0]
    assert words.tolist() == [0x0_4_2_F_0_9_7]
    assert sent("int4", torch.full((5,), 1e-42))[1].tolist() == [0.0] * 5


def test_int4_error_on_normal_numbers():
    row = torch.randn(800, 128)
    error = float(((sent("int4", row.view(-1))[1] - row.view(-1)) ** 2).mean())
    steps = row.abs().amax(dim=1) / 7
    assert error == pytest.approx(float((steps**2).mean()) / 12, rel=0.02)


def test_equal_numbers_go_by_their_place():
    (words,), out = sent("block_top_k", torch.tensor([1.0, -2.0, 2.0, -2.0, 0.0, 1.0]), ratio=0.5)
    assert [word & 0xFFFF for word in words[0].tolist()] == [1, 2, 3]
    assert out.tolist() == [0.0, -2.0, 2.0, -2.0, 0.0, 0.0]
    (words,), _ = sent("block_top_k", torch.tensor([1.0, 1.0 + 2**-12, 1.0, 3.0]), ratio=0.5)
    assert [word & 0xFFFF for word in words[0].tolist()] == [0, 3]  # bf16 sees no difference
    (words,), _ = sent("block_top_k", torch.tensor([-0.0, -0.0]), ratio=1.0)
    assert words.tolist() == [[0, 1]]


def test_values_are_torch_s_own_bf16():
    row = torch.randn(4096) * torch.exp2(torch.arange(4096) % 200 - 100.0)
    _, out = sent("block_top_k", row, ratio=1.0)
    assert torch.equal(out, row.bfloat16().float())


@pytest.mark.parametrize("name", ["sign", "int4", "block_top_k", "top_k", "qsgd"])
def test_a_cpu_needs_no_kernels(name, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    _fused._has_triton.cache_clear()
    assert compressor(name).kernels(CPU) is None


def test_kernels_are_for_powers_of_two_and_need_triton(monkeypatch):
    device = torch.device("cuda")
    monkeypatch.setattr(_fused, "_has_triton", lambda kind: kind == "cuda")
    assert _fused.fits(device, 4096, least=128, most=8192)
    assert not _fused.fits(CPU, 4096, least=128, most=8192)
    assert not _fused.fits(device, 4095, least=128, most=8192)
    assert not _fused.fits(device, 16384, least=128, most=8192)
    assert compressor("sign", block=100).kernels(device) is None


def test_only_the_last_program_looks_where_the_row_ends():
    assert list(_fused.launches(100, 32)) == [(0, 3, False), (3, 1, True)]
    assert list(_fused.launches(64, 32)) == [(0, 2, False)]
    assert list(_fused.launches(5, 32)) == [(0, 1, True)]
