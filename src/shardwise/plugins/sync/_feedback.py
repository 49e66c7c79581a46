"""Error feedback in its forms, shared by the compressed strategies."""

from shardwise.plugins.compressors import Compressor
from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator


def need_contractive(what: str, codec: Compressor) -> None:
    if codec.delta(2) is None:
        raise ValueError(
            f"compressor: {what} needs one that contracts, and {codec.name} only is unbiased; its error would grow. "
            "Write top_k, block_top_k, sign or low_rank, or let mem_sgd scale it"
        )


def squeeze(
    c: Communicator, codec: Compressor, rounds: int, row: Array, error: Array, server_error: Array
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The mean of row + error through compressed messages both ways, the server spread over all workers by parts.

    Returns (mean at everyone, what is left of the own row, what is left at the own part of the server). Each round
    compresses what the rounds before left over.
    """
    d = row.shape[1]
    packets, rest = c.feed_back(codec, c.parts(row), c.parts(error))
    arrived = c.joined(codec, c.exchange(codec, packets))
    for turn in range(1, rounds):
        packets, rest = c.feed_back(codec, rest * 0.0, rest, purpose=2 * turn)
        arrived = arrived + c.joined(codec, c.exchange(codec, packets))
    packets, server_rest = c.feed_back(codec, arrived, server_error, purpose=1)
    mean = c.publish(codec, packets, d)
    for turn in range(1, rounds):
        packets, server_rest = c.feed_back(codec, arrived * 0.0, server_rest, purpose=2 * turn + 1)
        mean = mean + c.publish(codec, packets, d)
    return mean, c.whole(rest, d), server_rest


def server_part(c: Communicator, x: Array) -> Array:
    """Zeros of the length of the own part of the server."""
    return c.fold(c.parts(x)) * 0.0
