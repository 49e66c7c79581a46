"""Every compressor in the folder: message of the size it claims, contraction or unbiasedness held by its numbers."""

import pytest

from one_thread import one_thread  # noqa: F401
from shardwise.plugins.compressors import Compressor, Draw, compressor, compressors

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be compressed")

NAMES = list(compressors())
ROWS = {
    "normal": lambda d: torch.randn(d),
    "heavy": lambda d: torch.randn(d) ** 3,
    "equal": lambda d: torch.ones(d),
    "one": lambda d: torch.nn.functional.one_hot(torch.tensor(d // 2), d).float() * 3,
    "zero": lambda d: torch.zeros(d),
}
DRAWS = 400


def sent(found: Compressor, row, draw: Draw):
    return found.decode(found.encode(row, draw), row.numel(), draw)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


@pytest.mark.parametrize("d", [1, 2, 7, 100, 513, 4097])
@pytest.mark.parametrize("name", NAMES)
def test_message_is_as_long_as_claimed(name, d):
    found = compressor(name)
    payload = found.encode(torch.randn(d), Draw())
    assert sum(part.nbytes for part in payload) == found.wire_bytes(d)
    decoded = found.decode(payload, d, Draw())
    assert decoded.shape == (d,)
    assert decoded.dtype == torch.float32


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_contraction_or_unbiasedness(name, kind):
    found, d = compressor(name), 300
    row = ROWS[kind](d)
    outs = torch.stack([sent(found, row, Draw(step=step)) for step in range(DRAWS)])
    errors = ((outs - row) ** 2).sum(dim=1)
    energy = float((row**2).sum())
    noise = 4.0 * float(errors.std()) / DRAWS**0.5 + 1e-6 * energy
    delta, omega = found.delta(d), found.omega(d)
    assert delta is not None or omega is not None
    if delta is not None:
        assert 0.0 < delta <= 1.0
        assert float(errors.mean()) <= (1.0 - delta) * energy + noise
    if omega is not None:
        assert float(errors.mean()) <= omega * energy + noise
        # the mean of n draws misses by the error's spread over sqrt n; 6 times that over all coordinates together
        missed = float(((outs.mean(dim=0) - row) ** 2).sum())
        assert missed <= 3.0 * float(errors.mean()) / DRAWS + 1e-9 * energy


@pytest.mark.parametrize("name", NAMES)
def test_same_draw_same_bits_and_input_untouched(name):
    row = torch.randn(257)
    before = row.clone()
    first, second = (compressor(name).encode(row, Draw(3, 4, 5)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(row, before)


@pytest.mark.parametrize("name", [name for name in NAMES if compressors()[name].linear])
def test_linear_messages_may_be_added(name):
    found, rows = compressor(name), torch.randn(4, 90)
    draws = [Draw(seed=7, step=2, worker=worker) for worker in range(4)]
    mean = torch.stack([found.encode(row, draw)[0] for row, draw in zip(rows, draws, strict=True)]).mean(dim=0)
    apart = torch.stack([sent(found, row, draw) for row, draw in zip(rows, draws, strict=True)]).mean(dim=0)
    torch.testing.assert_close(found.decode((mean,), 90, draws[0]), apart)


@pytest.mark.parametrize("name", NAMES)
def test_repeating_equals_compressing_the_rest_again(name):
    found = compressor(name)
    once, row = found.repeated(3), torch.randn(1000)
    if once is None:
        return
    rest = row.clone()
    for _ in range(3):
        rest = rest - sent(found, rest, Draw())
    torch.testing.assert_close(sent(once, row, Draw()), row - rest)


@pytest.mark.parametrize("name", NAMES)
def test_fields(name):
    assert compressors()[name].name == name


def test_wrong_names_and_settings_say_what_to_write():
    with pytest.raises(ValueError, match="did you mean 'top_k'"):
        compressor("topk")
    with pytest.raises(ValueError, match="did you mean 'ratio'"):
        compressor("top_k", rate=0.1)
    with pytest.raises(ValueError, match="ratio: 0 is out of range"):
        compressor("top_k", ratio=0)
    with pytest.raises(ValueError, match="levels: 1"):
        compressor("random_quantization", levels=1)
