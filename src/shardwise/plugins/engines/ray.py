"""A Ray cluster: the one at the address, of RAY_ADDRESS, running on this machine, or started here for the while."""

import socket
from collections.abc import Sequence
from contextlib import chdir
from typing import Any

from shardwise.interpreter import SafeChildren
from shardwise.plugins.engines._contract import Answers, Engine, Setup, Work, unreachable, wanted, worker_failed

MODULE, INSTALL = "ray", "shardwise[ray]"
KNOCK_S = 10.0


def _start(work: Work, shards: Sequence[bytes], setup: Setup) -> Answers:
    ray = wanted(MODULE, ENGINE.name, INSTALL)
    ours = not ray.is_initialized()
    if ours:
        try:
            _knock(setup.address)
            with SafeChildren(), chdir("/"):  # Ray lets its workers import from the folder it is started in
                ray.init(address=setup.address, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError) as problem:
            raise unreachable(ENGINE.name, setup.address, problem) from None
    waiting: dict[Any, int] = {}
    try:
        task = ray.remote(work)
        waiting = {task.remote(shard): place for place, shard in enumerate(shards)}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                try:
                    answer = ray.get(reference)
                except ray.exceptions.RayError as problem:
                    raise worker_failed(ENGINE.name, problem) from None
                yield waiting.pop(reference), answer
    finally:
        for reference in waiting:
            ray.cancel(reference)
        if ours:
            ray.shutdown()


def _knock(address: str | None) -> None:
    """Ray itself tries for minutes where nobody listens."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()


ENGINE = Engine(name="ray", summary="a Ray cluster", start=_start, module=MODULE, install=INSTALL)
