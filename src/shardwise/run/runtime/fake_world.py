"""A process group that pretends: this process is one of so many ranks, and messages go nowhere.

Used wherever one rank is run alone: to record or measure the runtime's own step, to trace a script, and to predict what
a rank of a split model holds.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from shardwise.run.runtime.private import fake_tensors, forget_meshes


@contextmanager
def fake_world(rank: int, ranks: int, *, values: bool = True) -> Iterator[FakeTensorMode | None]:
    """`values`: tensors have them; otherwise only shapes, dtypes and storages of the right size, in the mode that is
    given."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with ExitStack() as stack:
        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        stack.callback(dist.destroy_process_group)
        stack.callback(forget_meshes)
        yield None if values else stack.enter_context(fake_tensors())
