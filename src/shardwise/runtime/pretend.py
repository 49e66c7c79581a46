"""A process group that pretends: this process is one of any number of ranks, and nothing is sent."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def fake_world(rank: int, ranks: int) -> Iterator[None]:
    """torch's process group that pretends: this process is one of so many ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
