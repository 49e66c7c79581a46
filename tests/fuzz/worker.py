"""A process that runs inputs one after the other and says before and after each which it is. What would train,
measure or start processes of its own is stopped there; memory is bounded."""

import importlib
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from fuzz.one import Place, run_one
from fuzz.readers import readers
from fuzz.verbs import commands

ROOM_BYTES = 2 * 2**30
"""an input may take on top of what the modules take"""


def _stopped(*_: object, **__: object) -> NoReturn:
    raise OSError("stopped: from here on it would run")


def stop_before_running() -> None:
    """Whatever is past the reading and checking of input."""
    from shardwise.cost.calibrate import measured
    from shardwise.plugins.engines import local
    from shardwise.run.runtime import launch, verify
    from shardwise.run.trace import capture
    from shardwise.run.trace.script import script_of
    from shardwise.show.cli import plan, run

    def here(work: Any, shards: Any, places: range, _: int) -> Any:
        for place in places:
            yield place, work(shards[place])

    def traced(path: Path, *_: object) -> NoReturn:
        script_of(path)
        _stopped()

    importlib.import_module("torch.distributed.run").main = _stopped
    run.warn_of_memory = _stopped  # type: ignore[assignment]
    launch.train = launch.run_ranks = verify.verify = verify.fake_verify = measured.calibration = _stopped
    capture.traced = traced  # type: ignore[assignment]
    plan.cores = lambda: 1
    local._pooled = here


def tell_progress(tell: Any) -> None:
    """A bar that moves is a sign of life."""
    from shardwise.show.cli import _progress

    @contextmanager
    def bar(_: str) -> Iterator[Any]:
        yield lambda done, of: tell({"progress": [done, of]})

    original = _progress.bar
    for module in list(sys.modules.values()):
        if getattr(module, "bar", None) is original:
            module.bar = bar  # type: ignore[attr-defined]


def bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(seed: str, numbers: range, tell: Any) -> None:
    warnings.simplefilter("ignore")
    os.environ.update(SHARDWISE_NO_LAB="1", NO_COLOR="1", COLUMNS="120", OMP_NUM_THREADS="1")
    commands(), readers()
    tell_progress(tell)
    stop_before_running()
    place = Place()
    bound_memory()
    tell({"ready": True, "rss": _peak()})
    try:
        for number in numbers:
            tell({"begin": number})
            begun = time.monotonic()
            what, outcome = run_one(seed, number, place, lambda what: tell({"run": what}))
            tell({"end": number, "what": what, "kind": outcome.kind, "why": outcome.what,
                  "seconds": time.monotonic() - begun, "rss": _peak()})  # fmt: skip
    finally:
        place.close()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(sys.argv[1], range(*map(int, sys.argv[2:5])), lambda told: stream.write(json.dumps(told) + "\n"))
