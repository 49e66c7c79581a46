"""One vector through a compressor many times: what a reader sees of a randomized one."""

from collections.abc import Sequence

from shardwise.plugins.compressors._contract import Compressor
from shardwise.plugins.compressors._draw import Draw


def repeated(method: Compressor, vector: Sequence[float], draws: int, seed: int) -> list[list[float]]:
    """The vector as the receiver has it, once for each draw."""
    try:
        import torch
    except ImportError:
        raise ValueError("compress: PyTorch is not installed, and it compresses; pip install torch") from None
    row, found = torch.tensor(vector, dtype=torch.float32), []
    for at in range(draws):
        draw = Draw(seed=seed, step=at)
        found.append(method.decode(method.encode(row, draw), len(vector), draw).tolist())
    return found
