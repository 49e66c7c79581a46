"""Measurement laid over prediction: runs worlds of ranks on a lab, and tells each case with ports, queues and drops."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from shardwise_lab.build import Built
from shardwise_lab.cases import LabCase
from shardwise_lab.emulated import Emulated
from shardwise_lab.facts import LabRow, Measured, PortBytes, PortLoad
from shardwise_lab.job_told import job_says, told_job
from shardwise_lab.launch import answers_of
from shardwise_lab.order import Answer, JobStep, LabWorld, Span
from shardwise_lab.predict import USUAL_MESSAGE_S, Predicted, card_rate, in_turn, predicted
from shardwise_lab.sampler import TICK_S, Sampler, Samples, cpu_pressure, drops_of, tcp_counts
from shardwise_lab.told import told_load, told_row, turn_times

CALIBRATION = LabCase(op="shift", bytes=1024, times=9)
START_S = 60.0
"""that ranks may take to start, beyond what their work should take"""
MOST_WATCHED = 6


def check_bounds(fabric: Emulated, worlds: Sequence[LabWorld], limit_s: float, most_bytes: float) -> None:
    """Refuses what would take longer or send more than allowed, before anything is built."""
    seconds = total = 0.0
    for world in worlds:
        for says, sent in expected(fabric, world):
            seconds += world.turns() * says.seconds
            total += world.turns() * sent
    if seconds > limit_s:
        raise ValueError(f"limit: these cases take {seconds:,.0f} s of {limit_s:g} s allowed; write fewer or smaller "
                         "sizes, or a longer --limit")  # fmt: skip
    if total > most_bytes:
        raise ValueError(f"sizes: {total / 1e9:,.1f} GB in all, {most_bytes / 1e9:g} GB are allowed; write fewer or "
                         "smaller sizes")  # fmt: skip


def expected(fabric: Emulated, world: LabWorld) -> Iterator[tuple[Predicted, float]]:
    """(prediction of one turn, bytes that all ranks send in it) of everything that is timed as one."""
    ranks = len(world.order)
    if world.job is not None:
        says = job_says(fabric, world, USUAL_MESSAGE_S)
        yield says.predicted(ranks), says.sent_bytes
    for _, cases in world.sequences:
        yield in_turn(fabric, cases, world.order), sum(float(case.matrix(ranks).sum()) for case in cases)


@dataclass
class PortWatch:
    """What the ports and TCP say while a block runs."""

    built: Built
    every_s: float
    samples: Samples | None = None
    drops: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    pressure: float = 0.0

    def facts(
        self, rows: tuple[LabRow, ...] = (), loads: tuple[PortLoad, ...] = (), message_s: float | None = None
    ) -> Measured:
        fabric, samples = self.built.fabric, self.samples
        assert samples is not None
        gaps = np.diff(samples.at_s)
        sent, deep = samples.bytes[-1] - samples.bytes[0], samples.deepest(0.0, np.inf)
        ports = tuple(
            PortBytes(link=fabric.tree.links.name_of(link), predicted_bytes=0.0, measured_bytes=float(sent[link]),
                      queue_bytes=deep.get(link))
            for link in np.flatnonzero(sent).tolist()
        )  # fmt: skip
        return Measured(
            fabric=fabric.cluster.name, gpus=fabric.gpus, dilation=fabric.dilation, card_bytes_per_s=card_rate(fabric),
            message_s=message_s, rows=rows, loads=loads, ports=ports, drops=self.drops,
            retransmits=self.counts["retransmits"], timeouts=self.counts["timeouts"],
            marks_received=self.counts["marks_received"], cpu_pressure=self.pressure, ticks=len(samples.at_s),
            ticks_missed=int(np.maximum(np.round(gaps / self.every_s) - 1, 0).sum()),
        )  # fmt: skip


@contextmanager
def watching(built: Built, links: tuple[int, ...], every_s: float = TICK_S) -> Iterator[PortWatch]:
    dropped, counted = drops_of(built), tcp_counts(built)
    found = PortWatch(built, every_s)
    with Sampler(built, links, every_s) as sampler:
        yield found
        time.sleep(2 * every_s)
        found.pressure = cpu_pressure()
    found.samples = sampler.samples
    names = built.fabric.tree.links.name_of
    found.drops = {
        names(link): count - dropped[link] for link, count in drops_of(built).items() if count > dropped[link]
    }
    found.counts = {name: count - counted[name] for name, count in tcp_counts(built).items()}


def measured_on(
    built: Built, worlds: Sequence[LabWorld], limit_s: float, *, message_s: float | None = None,
    every_s: float = TICK_S, realtime: bool = False,
) -> Measured:  # fmt: skip
    """Runs the worlds and holds each case against its prediction. `message_s`: calibrated elsewhere; None: here, by
    messages of a kilobyte."""
    fabric = built.fabric
    calibrates = message_s is None
    asked = [LabWorld(order=worlds[0].order, cases=(CALIBRATION,)), *worlds] if calibrates else list(worlds)
    with watching(built, busiest_links(fabric, worlds), every_s) as watch:
        answers = answers_of(built, asked, limit_s + START_S, realtime=realtime)
    if message_s is None:
        calibration = [each for each in answers if isinstance(each, Span) and each.world == 0]
        message_s = _message_s(fabric, asked[0], calibration)
    assert watch.samples is not None
    rows, loads = [], []
    for number, world in enumerate(asked):
        if number == 0 and calibrates:
            continue
        here = [each for each in answers if each.world == number]
        for row, load in _told(fabric, world, here, watch.samples, message_s):
            rows.append(row)
            loads.append(load)
    return watch.facts(tuple(rows), tuple(loads), message_s)


def _told(
    fabric: Emulated, world: LabWorld, answers: Sequence[Answer], samples: Samples, message_s: float
) -> Iterator[tuple[LabRow, PortLoad]]:
    if world.job is not None:
        job, steps = job_says(fabric, world, message_s), [each for each in answers if isinstance(each, JobStep)]
        row = told_job(fabric, world, job, steps, samples)
        turns = [Span(world=0, case=0, turn=step.turn, rank=step.rank, start_s=step.start_s, end_s=step.end_s)
                 for step in steps]  # fmt: skip
        yield row, told_load(fabric, row, job.predicted(len(world.order)), turns, samples)
    for case, spans in _by_case([each for each in answers if isinstance(each, Span)]).items():
        name, cases = world.sequences[case]
        says = in_turn(fabric, cases, world.order, message_s)
        row = told_row(fabric, world.order, name, cases, says, spans, samples, message_s)
        yield row, told_load(fabric, row, says, spans, samples)


def busiest_links(fabric: Emulated, worlds: Sequence[LabWorld]) -> tuple[int, ...]:
    """Links whose queues are looked at, as predicted."""
    total = np.zeros(len(fabric.tree.links))
    for world in worlds:
        for says, _ in expected(fabric, world):
            total += says.link_bytes / fabric.tree.links.capacity
    order = np.argsort(-total, kind="stable")[:MOST_WATCHED]
    return tuple(int(link) for link in order if total[link] > 0)


def _message_s(fabric: Emulated, world: LabWorld, spans: Sequence[Span]) -> float:
    """Seconds of a message beyond its bytes."""
    return max(median(turn_times(spans)) - predicted(fabric, world.cases[0], world.order, 0.0).seconds, 0.0)


def _by_case(spans: Sequence[Span]) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = {}
    for span in sorted(spans, key=lambda s: (s.case, s.turn, s.rank)):
        found.setdefault(span.case, []).append(span)
    return found
