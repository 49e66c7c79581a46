"""Error feedback in its forms, shared by the compressed strategies."""

from shardwise.compressors import Compressor
from shardwise.sync._array import Array
from shardwise.sync._comm import Comm


def need_contractive(what: str, codec: Compressor) -> None:
    if codec.delta(2) is None:
        raise ValueError(
            f"compressor: {what} needs one that contracts, and {codec.name} only is unbiased; its error would grow. "
            "Write top_k, block_top_k, sign or low_rank, or let mem_sgd scale it"
        )


def squeeze(
    c: Comm, codec: Compressor, rounds: int, row: Array, server_rest: Array
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The mean of rows through compressed messages both ways, the server spread over all workers by parts.

    Returns (mean at everyone, what is left of the own row, what is left at the own part of the server). Each round
    compresses what the rounds before left over.
    """
    d = row.shape[1]
    rest, arrived = c.parts(row), server_rest
    for turn in range(rounds):
        packets = c.encode(codec, rest, purpose=2 * turn)
        rest = rest - c.decode(codec, packets)
        arrived = arrived + c.fold(c.decode(codec, c.exchange(codec, packets)))
    mean: Array | None = None
    for turn in range(rounds):
        packets = c.encode(codec, arrived, purpose=2 * turn + 1)
        arrived = arrived - c.decode(codec, packets)
        piece = c.publish(codec, packets, d)
        mean = piece if mean is None else mean + piece
    assert mean is not None  # rounds is 1 or more
    return mean, c.whole(rest, d), arrived


def server_part(c: Comm, x: Array) -> Array:
    """Zeros of the length of the own part of the server."""
    return c.fold(c.parts(x)) * 0.0
