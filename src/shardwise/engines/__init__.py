"""Where the shards of a long study run: on this machine, or on a cluster engine that is already there. One file each.

A shard is bytes, and so is its answer: the work is a pure function that a worker imports by name. Answers come back in
the order of the shards whichever engine ran them.
"""

from collections.abc import Callable, Sequence
from functools import cache

from shardwise.engines._contract import Engine, Lost, Setup, Work
from shardwise.registry import closest, plugins

__all__ = ["Engine", "Lost", "Setup", "engine_of", "engines", "run"]


@cache
def engines() -> dict[str, Engine]:
    found = [e for e in plugins("shardwise.engines", "ENGINE").values() if isinstance(e, Engine)]
    return {engine.name: engine for engine in found}


def engine_of(name: str) -> Engine:
    if name not in engines():
        raise ValueError(f"engine: {name!r} is unknown; {closest(name, list(engines()))}")
    return engines()[name]


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
