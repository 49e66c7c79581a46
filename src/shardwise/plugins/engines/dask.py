"""A Dask cluster: the one at the address, of DASK_SCHEDULER_ADDRESS, or started here for the while."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from shardwise.interpreter import SafeChildren
from shardwise.plugins.engines._contract import Answers, Engine, Setup, Work, unreachable, wanted, worker_failed

MODULE, INSTALL = "distributed", "shardwise[dask]"


def _start(work: Work, shards: Sequence[bytes], setup: Setup) -> Answers:
    distributed = wanted(MODULE, ENGINE.name, INSTALL)
    with SafeChildren():  # also for a worker that Dask starts later, in place of one that died
        yield from _answered(distributed, work, shards, setup)


def _answered(distributed: ModuleType, work: Work, shards: Sequence[bytes], setup: Setup) -> Answers:
    try:
        client = distributed.Client(setup.address)
    except (OSError, RuntimeError, ValueError) as problem:
        raise unreachable(ENGINE.name, setup.address, problem) from None
    try:
        # equal shards are equal work, but each has its own place
        futures = client.map(work, shards, pure=False)
        places = {future.key: place for place, future in enumerate(futures)}
        try:
            for future in distributed.as_completed(futures):
                yield places[future.key], _answer(future)
        finally:
            client.cancel(futures)
    finally:
        client.close()


def _answer(future: Any) -> bytes:
    try:
        answer: bytes = future.result()
        return answer
    except Exception as problem:
        raise worker_failed(ENGINE.name, problem) from None


ENGINE = Engine(name="dask", summary="a Dask cluster", start=_start, module=MODULE, install=INSTALL)
