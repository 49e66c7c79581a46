"""`sync`: strategies of data parallelism - what there is, what a step of one costs, n workers simulated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from msgspec import Struct

from shardwise.answers._strategy_list import StrategiesAnswer, settings_of, settings_text
from shardwise.answers.answer import Answer, Bars, Cell, FactList, Figure, Part
from shardwise.plugins.sync import Cost, ParameterLayout, Strategy
from shardwise.plugins.sync._asynchronous import play, slowest_factor, slowest_ticks, step_seconds
from shardwise.plugins.sync._cost import PricesMessages
from shardwise.plugins.sync._named import strategy_from
from shardwise.question.job import DEFAULT_PRECISION, DEFAULT_STACK
from shardwise.report.charts import chart_svg
from shardwise.report.course_figure import course_chart
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import MOST_ASSUMED, Job, optimizer_of, precision_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.state import replica_bytes
from shardwise.step.estimate.synced.convergence import extra_of
from shardwise.units import gib, time_text
from shardwise.work.case import driven_network

PLACES = 100
"""points of a run at which its error is kept"""


class SyncEventRow(Struct, frozen=True, kw_only=True):
    op: str
    algorithm: str
    bytes: int
    size: int
    stride: int
    most_sent_bytes: int


class SyncCostAnswer(Answer, frozen=True, kw_only=True):
    strategy: str
    settings: Mapping[str, str]
    workers: int
    parameters: int
    communication_s: float
    message_s: float
    peak_s: float
    sent_bytes: float
    total_bytes: float
    exchanges: float
    period_steps: int
    psgd_communication_s: float
    psgd_sent_bytes: float
    events: Sequence[SyncEventRow]
    compute_s: float | None
    """of a step at full speed, where it was given; with it the next six"""
    jitter: float | None
    slowest_worker: float | None
    step_s: float | None
    psgd_step_s: float | None
    simulated_step_s: float | None
    """where nobody waits"""
    server_busy: float | None
    state_bytes: int
    replica_bytes: float
    capacity_bytes: float | None
    fits: bool | None
    """none where no cluster is named"""
    network: str
    without_shapes: bool = False
    """a strategy that factors matrices, and a number of parameters in their place"""

    def parts(self) -> Iterator[Part]:
        title = f"{self.strategy}: {self.parameters:,} parameters, {self.workers:,} workers, {self.network}"
        facts = [
            ("settings", settings_text(self.settings)),
            *self._traffic(),
            *self._time(),
            ("memory", self._memory()),
        ]
        yield FactList(title, facts)
        both = {self.strategy: (self.communication_s, self.sent_bytes),
                "psgd": (self.psgd_communication_s, self.psgd_sent_bytes)}  # fmt: skip
        yield Bars("communication of a step", {who: (s, time_text(s)) for who, (s, _) in both.items()})
        yield Bars("sent in a step by the busiest worker",
                   {who: (size, f"{size / 1e6:,.1f} MB") for who, (_, size) in both.items()})  # fmt: skip

    @property
    def exit_code(self) -> int:
        return 1 if self.fits is False else 0

    def _traffic(self) -> list[tuple[str, Cell]]:
        dense, ours = self.psgd_communication_s, self.communication_s
        saved = dense / ours if ours and not self.without_shapes else None
        waits = f"; a worker waits for two messages of {time_text(self.message_s)}" if self.message_s else ""
        return [
            ("communication", f"{time_text(ours)} a step; psgd {time_text(dense)}"
                              + (f" ({saved:.3g} x)" if saved else "") + waits),
            ("longest step", time_text(self.peak_s)),
            ("sent", f"{self.sent_bytes / 1e6:,.1f} MB a step by the busiest worker; "
                     f"psgd {self.psgd_sent_bytes / 1e6:,.1f} MB"),
            ("exchanges", f"{self.exchanges:.3g} a step, repeating every {self.period_steps:,} steps"),
        ]  # fmt: skip

    def _time(self) -> list[tuple[str, Cell]]:
        if self.step_s is None or self.psgd_step_s is None or self.compute_s is None:
            return []
        slowest = self.slowest_worker or 1.0
        slow = f", the slowest worker {slowest:g} x" if slowest > 1 else ""
        rows: list[tuple[str, Cell]] = [
            ("step", f"{time_text(self.step_s)} with {time_text(self.compute_s)} of compute{slow}; psgd, which waits, "
                     f"{time_text(self.psgd_step_s)} ({self.psgd_step_s / self.step_s:.3g} x)")
        ]  # fmt: skip
        if self.simulated_step_s is not None:
            busy = f"the server's link {self.server_busy:.0%} busy"
            rows.append(("simulated", f"{time_text(self.simulated_step_s)} a step; {busy}"))
        return rows

    def _memory(self) -> str:
        held = f"{gib(self.state_bytes)} GiB of state per worker"
        if self.capacity_bytes is None:
            return held
        beside, whole = gib(self.replica_bytes), gib(self.capacity_bytes)
        end = f"fits in {whole} GiB" if self.fits else f"does not fit in {whole} GiB"
        return f"{held} beside {beside} GiB of the model and its optimizer: {end}"


class ErrorCurve(Struct, frozen=True, kw_only=True):
    step: Sequence[int]
    error: Sequence[float]


class SyncSimulateAnswer(Answer, frozen=True, kw_only=True):
    strategy: str
    settings: Mapping[str, str]
    workers: int
    steps: int
    lr: float
    spread: float
    noise: float
    seed: int
    error: float | None
    """none where it diverged"""
    psgd_error: float | None
    diverged: bool
    worker_steps: float
    """of a worker on average, in the time of the steps"""
    psgd_steps: int
    """of psgd in the same time"""
    curve: ErrorCurve
    psgd_curve: ErrorCurve

    def parts(self) -> Iterator[Part]:
        ours, dense = self.error, self.psgd_error
        ratio = "" if ours is None or not dense else f" ({ours / dense:.3g} x)"
        words = ["diverged" if error is None else f"{error:.4g}" for error in (ours, dense)]
        yield FactList(f"{self.strategy}: {self.workers:,} workers", [
            ("settings", settings_text(self.settings)),
            ("error", f"{words[0]}; psgd {words[1]}{ratio}"),
        ])  # fmt: skip
        yield Figure(lambda: _curves_svg({self.strategy: self.curve, "psgd": self.psgd_curve}))

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [*notes, "it diverged: try a smaller --lr"] if self.diverged else notes

    @property
    def exit_code(self) -> int:
        return 1 if self.diverged else 0


ANSWERS = (StrategiesAnswer, SyncCostAnswer, SyncSimulateAnswer)


@dataclass(frozen=True)
class SyncQuestion:
    """What `sync cost` is asked, read from text."""

    strategy: Strategy
    shapes: ParameterLayout
    network: PricesMessages
    where: str
    """the network in words"""
    workers: int
    cluster: Cluster | None = None
    has_shapes: bool = True
    """a model is named, not a number of parameters"""
    compute_s: float | None = None
    jitter: float = 0.0


def cluster_network(cluster: Cluster) -> PricesMessages:
    """As `estimate` prices it."""
    return driven_network(cluster, stack_of(DEFAULT_STACK))


def sync_cost_answer(ask: SyncQuestion) -> SyncCostAnswer:
    strategy, gpu = ask.strategy, None if ask.cluster is None else ask.cluster.gpu
    found, dense = (each.cost(ask.shapes, ask.network, ask.workers) for each in (strategy, strategy_from("psgd", [])))
    replica = replica_bytes(found.parameters, _job(strategy))
    fits = None if gpu is None else found.state_bytes + replica <= gpu.memory_bytes
    shapeless = strategy.factors_matrices() and not ask.has_shapes
    times = _times(ask, found, dense)
    return SyncCostAnswer(
        strategy=found.strategy, settings=settings_of(strategy), workers=found.workers, parameters=found.parameters,
        communication_s=found.seconds, message_s=found.message_s, peak_s=found.peak_s, sent_bytes=found.sent_bytes,
        total_bytes=found.total_bytes, exchanges=found.messages, period_steps=found.steps,
        psgd_communication_s=dense.seconds, psgd_sent_bytes=dense.sent_bytes,
        events=[
            SyncEventRow(op=e.op, algorithm=e.algorithm, bytes=e.bytes, size=e.size, stride=e.stride,
                         most_sent_bytes=max(e.sent))
            for e in dict.fromkeys(found.events)
        ],
        compute_s=times.compute_s, jitter=times.jitter, slowest_worker=times.slowest_worker, step_s=times.step_s,
        psgd_step_s=times.psgd_step_s, simulated_step_s=times.simulated_step_s, server_busy=times.server_busy,
        state_bytes=found.state_bytes, replica_bytes=replica, capacity_bytes=None if gpu is None else gpu.memory_bytes,
        fits=fits, network=ask.where, without_shapes=shapeless,
        notes=_notes(strategy, found, dense, shapeless, fits is False),
    )  # fmt: skip


@dataclass(frozen=True)
class _Times:
    compute_s: float | None = None
    jitter: float | None = None
    slowest_worker: float | None = None
    step_s: float | None = None
    psgd_step_s: float | None = None
    simulated_step_s: float | None = None
    server_busy: float | None = None


def _times(ask: SyncQuestion, found: Cost, dense: Cost) -> _Times:
    """Of a step with so much compute at full speed. Who waits, waits for the slowest; psgd on the same workers."""
    alone, jitter = ask.compute_s, ask.jitter
    if alone is None:
        return _Times()
    cycles = ask.strategy.cycles(found.workers)
    slowest = 1.0 if cycles is None else slowest_ticks(cycles)
    waited = dense.seconds + alone * slowest * slowest_factor(found.workers, jitter)
    if cycles is None:
        # those who meet every H steps wait for the slowest sum of H
        step = found.seconds + alone * slowest_factor(found.workers, jitter * found.busy**0.5)
        return _Times(alone, jitter, slowest, step, waited)
    run = play(cycles, alone, found.message_s, jitter=jitter)
    step = float(step_seconds(cycles, alone, found.message_s))
    return _Times(alone, jitter, slowest, step, waited, run.step_s, run.server_busy)


def _job(strategy: Strategy) -> Job:
    """AdamW, where the strategy is not the optimizer itself."""
    name = "adamw" if strategy.needs_optimizer() == "any" else strategy.needs_optimizer()
    return Job(
        seq=MOST_ASSUMED, global_batch=1, precision=precision_of(DEFAULT_PRECISION), optimizer=optimizer_of(name)
    )


def _notes(strategy: Strategy, found: Cost, dense: Cost, shapeless: bool, full: bool) -> list[str]:
    optimizer = _job(strategy).optimizer.name
    extra = extra_of(strategy, optimizer)
    notes = [
        "nothing hidden behind compute; time to compress not counted; fp32 on the network; answered by the cost model",
        f"extra steps to the loss of psgd, with {optimizer}: {extra.text} ({extra.source})",
    ]
    if not strategy.waits():
        notes.append(
            "nobody waits: communication is the busier direction of the server's link, which travels under the compute "
            "of others; --compute TIME adds the step it comes to"
        )
    if shapeless:
        notes.append(
            f"{strategy.name} factors matrices, and --parameters has no shapes: all is sent as one dense vector, so "
            "what it saves is not known here; write --model NAME"
        )
    if strategy.waits() and strategy.name != "psgd" and found.seconds > dense.seconds:
        longer = time_text(found.seconds - dense.seconds)
        notes.append(f"slower than the dense all-reduce of psgd, by {longer}: {found.sent_bytes / 1e6:,.4g} MB in "
                     f"{found.messages:.3g} exchanges against {dense.sent_bytes / 1e6:,.4g} MB")  # fmt: skip
    if full:
        notes.append(
            "every worker is one GPU with a whole replica here; `shardwise estimate --sync` takes tensor and pipeline "
            "parallelism and shard groups, and counts activations too"
        )
    return notes


def sync_simulate_answer(
    strategy: Strategy, workers: int, steps: int, *, lr: float, spread: float, noise: float, seed: int
) -> SyncSimulateAnswer:
    from shardwise.plugins.sync._problems import LeastSquares, errors  # which import torch

    problem = LeastSquares.of(workers, 20, spread=spread, noise=noise, seed=seed)
    cycles = strategy.cycles(workers)
    dense_steps = max(int(steps / (1.0 if cycles is None else slowest_ticks(cycles))), 1)
    tail = max(steps // 10, 1)
    ours, dense = (
        errors(problem, each, steps=many, lr=lr, seed=seed)
        for each, many in ((strategy, steps), (strategy_from("psgd", []), dense_steps))
    )
    error, dense_error = (sum(each[-tail:]) / len(each[-tail:]) for each in (ours, dense))
    worker_steps = strategy.steps_in(steps, workers)
    notes = [
        f"least squares with 20 parameters per worker, {steps:,} steps of plain SGD, mean of the last {tail:,}",
        "error: mean squared distance of the workers to the minimum of all; answered by simulation",
    ]
    if cycles is not None:
        notes.append(
            f"nobody waits: in the time of {steps:,} steps at full speed the workers do {worker_steps:,.5g} each on "
            f"average; psgd, which waits for the slowest, {dense_steps:,}"
        )
    return SyncSimulateAnswer(
        strategy=strategy.name, settings=settings_of(strategy), workers=workers, steps=steps, lr=lr, spread=spread,
        noise=noise, seed=seed, error=error if isfinite(error) else None,
        psgd_error=dense_error if isfinite(dense_error) else None, diverged=not isfinite(error),
        worker_steps=worker_steps, psgd_steps=dense_steps, curve=_curve(ours), psgd_curve=_curve(dense), notes=notes,
    )  # fmt: skip


def _curves_svg(curves: Mapping[str, ErrorCurve]) -> str:
    lines = [(who, [(step, error) for step, error in zip(curve.step, curve.error, strict=True) if error > 0])
             for who, curve in curves.items()]  # fmt: skip
    return chart_svg(
        course_chart("error on the way", [("mean squared distance to the minimum", lines)], "step", log=True)
    )


def _curve(found: Sequence[float]) -> ErrorCurve:
    """The error on the way, a mean for each of a few places; what is not finite is where it ends."""
    edges = sorted({len(found) * place // PLACES for place in range(PLACES + 1)})
    means = [(high, sum(found[low:high]) / (high - low)) for low, high in pairwise(edges)]
    kept = [(step, error) for step, error in means if isfinite(error)]
    return ErrorCurve(step=[step for step, _ in kept], error=[error for _, error in kept])
