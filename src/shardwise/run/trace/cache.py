"""What of a kernel's bytes is still in the GPU's cache: tensors touched a moment ago are read from there, not from
memory.

Measured on one H200 (`evidence/timed/trace-machine-h200.csv`, group `cache`): passes over buffers taken in turn are
faster as long as all of them together stay below three quarters of the cache.
"""

from collections import OrderedDict

from shardwise.run.trace.events import StepEvent

HELD_SHARE = 0.75
"""of the cache, that holds what was touched last"""
CACHED_TIME = 0.6
"""of bytes from the cache over bytes from memory"""


class Cache:
    """Storages by when they were last touched."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity * HELD_SHARE
        self._held: OrderedDict[int, int] = OrderedDict()
        self._bytes = 0

    def touched(self, event: StepEvent) -> float:
        """Bytes that the event finds in the cache; what it touches is there afterwards."""
        found = 0.0
        seen: set[int] = set()
        for storage, size in (*event.reads, *event.writes):
            key = id(storage)
            if key not in seen:
                found += min(self._held.get(key, 0), size)
                seen.add(key)
        for storage, size in (*event.reads, *event.writes):
            self._keep(id(storage), size)
        return found

    def _keep(self, key: int, size: int) -> None:
        self._bytes += size - self._held.pop(key, 0)
        self._held[key] = size
        while self._bytes > self.capacity:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= dropped
