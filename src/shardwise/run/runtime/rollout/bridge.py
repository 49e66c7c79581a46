"""Messages between ranks that train and ranks that roll out: a process group of its own over all of them, gloo's.

On a GPU weights pass through the host's memory.
"""

from collections.abc import Iterable
from datetime import timedelta
from time import perf_counter
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

from shardwise.run.runtime.parallel.comm import CommEvent

AXIS = "rollout"


class Bridge:
    def __init__(self, store: Store, rank: int, ranks: int, wait: timedelta) -> None:
        self.store, self.rank, self.ranks = store, rank, ranks
        self.events: list[CommEvent] = []
        self._group: Any = dist.ProcessGroupGloo(store, rank, ranks, wait) if ranks > 1 else None

    def exchange(
        self, phase: str, sent: Iterable[tuple[int, Tensor]], received: Iterable[tuple[int, Tensor]] = ()
    ) -> None:
        """Sends (to, tensor) and fills (from, tensor), all at once; at most one message to each rank."""
        start, group, works = perf_counter(), self._group, []
        messages = [(to, x.detach().cpu().contiguous()) for to, x in sent]
        landing = [(source, x, x if x.device.type == "cpu" else x.cpu()) for source, x in received]
        if group is None:
            return  # alone: all plans are empty
        works += [group.recv([host], source, 0) for source, _, host in landing]
        works += [group.send([x], to, 0) for to, x in messages]
        for work in works:
            work.wait()
        for _, x, host in landing:
            if x is not host:
                x.copy_(host)
        ended = perf_counter()
        for to, x in messages:
            self.events.append(CommEvent(
                axis=AXIS, op="send", phase=phase, bytes=x.numel() * x.element_size(),
                dtype=str(x.dtype).removeprefix("torch."), ranks=(self.rank, to), start_s=start, end_s=ended,
            ))  # fmt: skip

    def told_to_all(self, name: str, mine: bytes) -> list[bytes]:
        """What every rank says once, by rank."""
        self.store.set(f"{name}/{self.rank}", mine.decode())
        return [bytes(self.store.get(f"{name}/{rank}")) for rank in range(self.ranks)]
