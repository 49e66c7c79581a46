"""The flag of ranks that share one GPU, said wherever it is used."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.measured.record.writer import say

ShareGpu = Annotated[
    int, Parameter(help="So many ranks on this machine's first GPU, over NCCL's sockets, for tests; not for speed.")
]


def sharing(ranks: int, needed: int, device: str) -> str:
    """The device they have, once it can be shared by all of them."""
    from shardwise.run.runtime.share_gpu import shared_gpu

    if ranks != needed:
        raise ValueError(f"share-gpu: {ranks}, but {needed} ranks run; write --share-gpu {needed}")
    if device not in ("auto", "cuda"):
        raise ValueError(f"device: {device} with --share-gpu; write --device cuda, or leave --share-gpu away")
    say(shared_gpu(ranks).text())
    return "cuda"
