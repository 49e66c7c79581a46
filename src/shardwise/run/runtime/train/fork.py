"""Local ranks as forked processes: they share what is already imported, so that eight start in less than a second."""

import math
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from shardwise.run.runtime.loopback import use_loopback
from shardwise.run.runtime.parent import die_with_parent
from shardwise.run.runtime.seats import RankSeats
from shardwise.run.runtime.train import idle
from shardwise.run.runtime.train.idle import IdleWatch, places, write_stack_when_asked
from shardwise.user_cache import keep_compiled_code_private

Result = TypeVar("Result")

POLL_S, GRACE_S = 0.005, 5.0


def forked(
    ranks: int, work: Callable[[int], Result], seats: RankSeats | None = None,
    before: Callable[[], object] = lambda: None,
) -> list[Result]:  # fmt: skip
    """`work(rank)` on so many gloo ranks, or where `seats` are given on NCCL's; their results, or the first failure's
    text. `before`: what every rank does alone, before it meets the others."""
    use_loopback()
    keep_compiled_code_private()
    with tempfile.TemporaryDirectory() as folder, seats.together() if seats is not None else nullcontext():
        children = []
        sys.stdout.flush()
        sys.stderr.flush()
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                _child(Path(folder), rank, ranks, work, seats, before)
            children.append(child)
        codes = _ended(children, Path(folder))
        answers = [_read(Path(folder) / f"rank-{rank}") for rank in range(ranks)]
    for rank, (code, answer) in enumerate(zip(codes, answers, strict=True)):
        if code > 0 and isinstance(answer, str) and "Connection" not in answer.splitlines()[-1]:
            raise RuntimeError(f"rank {rank} failed:\n{answer}")
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}: {next(a for a, c in zip(answers, codes, strict=True) if c)}")
    return answers  # type: ignore[return-value]


def _ended(children: list[int], folder: Path) -> list[int]:
    """Exit codes. When one has failed the others wait for it in vain: they have a moment to end by themselves. Ranks
    that all wait for each other are ended with the line that each is in."""
    codes: dict[int, int] = {}
    stop, watch, stuck = math.inf, IdleWatch(children), ""
    while len(codes) < len(children):
        for child in children:
            if child not in codes and (ended := os.waitpid(child, os.WNOHANG))[0]:
                codes[child] = os.waitstatus_to_exitcode(ended[1])
                stop = min(stop, monotonic() + GRACE_S) if codes[child] else stop
        if not codes and watch.idle():
            stuck, stop = places(children, [_stack(folder, rank) for rank in range(len(children))]), 0.0
        if monotonic() > stop:
            for child in children:
                if child not in codes:
                    os.kill(child, signal.SIGKILL)
            stop = math.inf
        sleep(POLL_S)
    if stuck:
        raise RuntimeError(
            f"no rank did anything for {idle.IDLE_S:.0f} s: {stuck} wait for each other; every rank must call the same "
            "modules in the same order, and what is compiled in build() does not run in them"
        )
    return [codes[child] for child in children]


def _child(
    folder: Path, rank: int, ranks: int, work: Callable[[int], Result], seats: RankSeats | None,
    before: Callable[[], object],
) -> None:  # fmt: skip
    code = 1
    try:
        die_with_parent()
        write_stack_when_asked(_stack(folder, rank))
        torch.set_num_threads(1)
        before()
        store = FileStore(str(folder / "store"), ranks)
        if seats is not None:
            seats.enter(rank)
            torch.cuda.set_device(0)
        dist.init_process_group("gloo" if seats is None else "nccl", rank=rank, world_size=ranks, store=store)
        answer: object = work(rank)
        code = 0
    except BaseException:
        answer = traceback.format_exc()
    try:
        (folder / f"rank-{rank}").write_bytes(pickle.dumps(answer))
        if code == 0:
            # no collective: over sockets one rank may have it while what the next one waits for is still to be sent
            store.set(f"left/{rank}", "1")
            store.wait([f"left/{each}" for each in range(ranks)])
    finally:
        os._exit(code)


def cause_line(text: str) -> str:
    """Of a failure's text the line that says what was wrong: CUDA's advice follows it."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    said = [line for line in lines if "Error: " in line and not line.startswith(" ")]
    return (said or lines or [""])[-1]


def _stack(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}-stack"


def _read(path: Path) -> object:
    # written a moment ago by our own child
    return pickle.loads(path.read_bytes()) if path.exists() else "no answer"  # nosec B301  of a process forked from this one
