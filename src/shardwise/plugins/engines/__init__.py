"""Runs the shards of a long study: on this machine, or on a cluster engine that is already there. One file each.

A shard is bytes, and so is its answer: the work is a pure function that a worker imports by name. Answers come back in
the order of the shards whichever engine ran them.
"""

from collections.abc import Callable, Sequence
from functools import cache

from shardwise.plugins.engines._contract import Engine, Lost, Setup, Work
from shardwise.registry import named, plugins_of

__all__ = ["Engine", "Lost", "Setup", "engine_of", "engines", "run"]


@cache
def engines() -> dict[str, Engine]:
    return {engine.name: engine for engine in plugins_of("shardwise.plugins.engines", "ENGINE", Engine).values()}


def engine_of(name: str) -> Engine:
    return named("engine", name, engines())


def run(
    engine: Engine,
    work: Work,
    shards: Sequence[bytes],
    setup: Setup,
    progress: Callable[[int, int], None] | None = None,
) -> list[bytes | Lost | None]:
    """The answers in the order of the shards; after Ctrl-C None where there is none. `progress`: (done, of all)."""
    answers: list[bytes | Lost | None] = [None] * len(shards)
    if not shards:
        return answers
    running = engine.start(work, shards, setup)
    done = 0
    try:
        for place, answer in running:
            answers[place] = answer
            done += 1
            if progress is not None:
                progress(done, len(shards))
    except KeyboardInterrupt:
        return answers
    finally:
        running.close()
    return answers
