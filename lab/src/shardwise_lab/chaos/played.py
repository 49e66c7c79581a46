"""Plays a case on a lab of four GPUs and looks at what the run left: its steps, its words, its ports."""

import csv
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import Struct

from shardwise.run.runtime.train.ending import NOTICED_S
from shardwise_lab.build import Built, standing
from shardwise_lab.chaos.cases import ANEW, FAILED, SLOW, VICTIM, ChaosCase
from shardwise_lab.chaos.trained import EVERY, ONSET, STEPS, TIMEOUT_S, ChaosRun, training
from shardwise_lab.emulated import emulated_of
from shardwise_lab.facts import LabComparison, Measured
from shardwise_lab.job_told import job_says
from shardwise_lab.jobs import quick_job
from shardwise_lab.knobs import Knobs
from shardwise_lab.measured import PortWatch, watching
from shardwise_lab.order import LabWorld
from shardwise_lab.sampler import drops_of, port_downs

ON = "star4"
CARD = 40e6 / 8
SETTLED = 5
"""steps after a restart or a fault that are not timed"""


class ChaosCheck(Struct, frozen=True, kw_only=True):
    what: str
    found: str
    ok: bool


class ChaosResult(Struct, frozen=True, kw_only=True):
    chaos: str
    explained: tuple[str, str, str]
    checks: tuple[ChaosCheck, ...]
    comparisons: tuple[LabComparison, ...]
    exit_code: int
    """of the run"""
    run: Measured


def play(case: ChaosCase, folder: Path, limit_s: float, said: Callable[[str], None] = lambda _: None) -> ChaosResult:
    """Leaves records, checkpoints, log and port counters in the folder."""
    fabric = emulated_of(ON, Knobs(card_bytes_per_s=CARD))
    ports = tuple(range(fabric.tree.offsets[2], fabric.tree.offsets[4]))
    with standing(fabric) as built:
        said(f"training on {fabric.gpus} GPUs")
        counted = [_counters(built)]
        with watching(built, ports, 0.02) as watch, training(built, folder, limit_s) as run:
            case.put_in(run)
            said("it has happened")
            code = run.ended()
        counted.append(_counters(built))
    (folder / "ports.csv").write_text(_table(built, counted), encoding="utf-8")
    checks = tuple(_checks(case, run, code, watch))
    return ChaosResult(
        chaos=case.name, explained=case.explained, checks=checks, exit_code=code,
        comparisons=tuple(_comparisons(case, run)), run=watch.facts(),
    )  # fmt: skip


def _checks(case: ChaosCase, run: ChaosRun, code: int, watch: PortWatch) -> Iterator[ChaosCheck]:
    steps, said = run.steps(), run.said()
    last = max((int(line["step"]) for line in steps), default=0)
    yield ChaosCheck(
        what="all steps are made", found=f"{last} of {STEPS}, exit code {code}", ok=last == STEPS and not code
    )
    if case.times_out:
        after = run.noted[FAILED]
        # a rank counts from its own last message on
        yield ChaosCheck(
            what=f"a rank gives up after {TIMEOUT_S:g} s, and asks for {NOTICED_S:g} s who has noticed",
            found=f"it says so {after:.1f} s after the cut", ok=TIMEOUT_S - 1 < after < TIMEOUT_S + NOTICED_S + 3,
        )  # fmt: skip
        yield ChaosCheck(what="it says who gave no sign", found=_line(said, "no sign of rank"),
                         ok=f"no sign of rank {VICTIM}" in said)  # fmt: skip
    elif case.restarts:
        words = f"rank {VICTIM} was killed by signal 9"
        yield ChaosCheck(what="the launcher says who was killed", found=_line(said, words), ok=words in said)
    if case.restarts:
        yield from _after_restart(steps, said)
    else:
        yield ChaosCheck(what="nothing is restarted", found=_line(said, ANEW) or "no restart", ok=ANEW not in said)
        longest = _longest_queue(run, watch)
        yield ChaosCheck(what="the longest queue, in the mean, stands in front of the slow port", found=longest,
                         ok=longest == case.link)  # fmt: skip


def _after_restart(steps: list[dict[str, float]], said: str) -> Iterator[ChaosCheck]:
    order = [int(line["step"]) for line in steps]
    back = next((place for place in range(1, len(order)) if order[place] <= order[place - 1]), len(order))
    reached, found = order[back - 1], _line(said, "resumed after step")
    resumed = int(found.rpartition(" ")[2]) if found else -1
    # one that was being written when it happened is no whole one
    newest = reached // EVERY * EVERY
    yield ChaosCheck(what="all start again from the last whole checkpoint", found=found or "no such word",
                     ok=resumed in (newest, newest - EVERY) and resumed > 0)  # fmt: skip
    made = sorted(set(order))
    yield ChaosCheck(what="no step is missing", found=f"{len(made)} steps", ok=made == list(range(1, STEPS + 1)))
    first = {int(line["step"]): line["loss"] for line in steps[:back]}
    again = [line for line in steps[back:] if int(line["step"]) in first]
    same = sum(first[int(line["step"])] == line["loss"] for line in again)
    yield ChaosCheck(
        what="steps that are made again have the same losses, bit for bit", found=f"{same} of {len(again)}",
        ok=same == len(again) == reached - resumed,
    )  # fmt: skip


def _longest_queue(run: ChaosRun, watch: PortWatch) -> str:
    samples = watch.samples
    assert samples is not None
    mean = samples.queues[samples.at_s > run.fault_s].mean(axis=0)
    return run.built.fabric.tree.links.name_of(samples.watched[int(np.argmax(mean))])


def _comparisons(case: ChaosCase, run: ChaosRun) -> Iterator[LabComparison]:
    """How much longer a step takes on the slow link, where nothing else changed."""
    if case.restarts:
        return
    world = LabWorld(order=tuple(range(run.built.fabric.gpus)), job=quick_job(run.built.fabric.gpus), steps=1)
    usual, slow = (
        job_says(emulated_of(ON, Knobs(card_bytes_per_s=CARD, slow=slowed)), world, 0.0).seconds
        for slowed in ((), ((case.link, SLOW),))
    )
    steps = run.steps()
    before = [line["step_s"] for line in steps if SETTLED < line["step"] < ONSET]
    after = [line["step_s"] for line in steps if line["step"] > ONSET + SETTLED]
    yield LabComparison(what="a step is longer by", measured=median(after) - median(before), predicted=slow - usual,
                        unit="s")  # fmt: skip


def _line(said: str, words: str) -> str:
    """The first line that has them."""
    return next((line.strip()[:200] for line in said.splitlines() if words in line), "")


def _counters(built: Built) -> tuple[float, dict[int, int], dict[int, int]]:
    return time.time(), drops_of(built), port_downs(built)


def _table(built: Built, counted: list[tuple[float, dict[int, int], dict[int, int]]]) -> str:
    """As a switch's counters are kept: `doctor` reads it."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(("time", "port", "out_discards", "link_downed"))
    for at, drops, downs in counted:
        for link in drops:
            rows.writerow((f"{at:.3f}", built.fabric.tree.links.name_of(link), drops[link], downs[link]))
    return text.getvalue()
