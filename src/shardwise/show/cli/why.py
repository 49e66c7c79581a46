"""`shardwise why`: where a measured run loses its time against its prediction, and the cure."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers._why_question import LogMeasured, RunAsMeant, TraceMeasured, WhyQuestion
from shardwise.answers.why import why_answer
from shardwise.cost.curve import curve_of
from shardwise.measured.diagnose.clocks import ClockFinding, GpuClock
from shardwise.measured.diagnose.device_trace import RankTrace
from shardwise.measured.diagnose.logged import RunLog
from shardwise.measured.diagnose.measured_step import measured_step
from shardwise.measured.diagnose.pace import pace_of, series_of
from shardwise.measured.diagnose.products import ProductBesideCurve, beside_curve
from shardwise.measured.diagnose.recorder import stuck_in
from shardwise.measured.diagnose.step_spans import step_spans
from shardwise.measured.diagnose.why_slow import why_log, why_step
from shardwise.programs.importers.run_files import RunFiles, read_run
from shardwise.question.studies.money import rent_a_day
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._why_case import WhyFlags, lengths_of, ran_of
from shardwise.spec.load import gpu_of
from shardwise.spec.reported import catalog_gpu

MOST_STEPS = 1_000_000
NO_FLAGS = WhyFlags()


def why(
    run: Annotated[list[Path], Parameter(help="Logs, tables, traces or dumps of the run, or folders of them.")],
    /,
    flags: WhyFlags = NO_FLAGS,
    *,
    steps: Annotated[int | None, Parameter(help="Steps in a trace that marks none."), within(1, MOST_STEPS)] = None,
    spans: Annotated[
        bool, Parameter(negative=(), help="With --json: every kernel of one measured step, as columns.")
    ] = False,
    json: Json = False,
) -> int:
    """Where the time of a measured step went: kernels, exposed collectives by axis, host, data, stragglers, stalls.

    Exit code 1 when the run is slower than its prediction's band, or stands still.
    """
    if not run:
        raise ValueError("run: none named; write the path of a log or a trace")
    files = read_run(run)
    ran = ran_of(flags, _logged_batch(files.logs))
    clocks = clocks_of(files, ran)
    ask = WhyQuestion(
        ran=ran, rent_usd=_rent(ran, files.traces), clocks=clocks,
        trace=_trace_measured(files, ran, steps, clocks) if files.traces else None,
        logs=[_log_measured(log, ran, clocks) for log in files.logs],
        stuck=stuck_in(files.dumps), dumps=len(files.dumps), left_out=files.left_out,
    )  # fmt: skip
    answer = why_answer(ask)
    if spans and files.traces:
        answer = with_fields(answer, spans=step_spans(files.traces, steps))
    return answered(answer, json)


def _logged_batch(logs: tuple[RunLog, ...]) -> int | None:
    return next((step.global_batch for log in logs for step in log.steps if step.global_batch), None)


def clocks_of(files: RunFiles, ran: RunAsMeant | None) -> ClockFinding | None:
    """Of monitors beside the run and of traces that sampled them, beside those of the catalog; the prediction counts on
    what the power limit leaves in long runs."""
    sampled: list[GpuClock] = [gpu for log in files.clocks for gpu in log.gpus]
    sampled += [trace.clock for trace in files.traces if trace.clock is not None]
    if not sampled:
        return None
    if ran is not None:
        case = ran.launch.case
        boost = case.cluster.gpu.boost_clock_hz
        return ClockFinding(tuple(sampled), boost, boost * case.curve.gemm_law(case.job.precision.compute).sustained)
    names = [gpu.device for gpu in sampled] + [trace.device for trace in files.traces]
    known = next((found for name in names if name and (found := catalog_gpu(name)) is not None), None)
    return ClockFinding(tuple(sampled), None if known is None else gpu_of(known).boost_clock_hz, None)


def _trace_measured(files: RunFiles, ran: RunAsMeant | None, steps: int | None, clocks: ClockFinding | None
                  ) -> TraceMeasured:  # fmt: skip
    measured = measured_step(files.traces, None if ran is None else ran.launch.policy, steps)
    expected = None if ran is None else ran.expected
    found = why_step(measured, expected, clocks)
    return TraceMeasured(measured, found, tuple(_products(files.traces[0], ran)), files.traces[0].simulated)


def _products(trace: RankTrace, ran: RunAsMeant | None) -> list[ProductBesideCurve]:
    """Of one rank, where its GPU is known: the others multiply the same shapes."""
    if not trace.products:
        return []
    named = catalog_gpu(trace.device)
    curve = ran.launch.case.curve if ran is not None else curve_of(gpu_of(named)) if named is not None else None
    return [] if curve is None else beside_curve(trace.products, curve)


def _log_measured(log: RunLog, ran: RunAsMeant | None, clocks: ClockFinding | None) -> LogMeasured:
    if not log.steps:
        if log.mean is None:
            raise ValueError(f"run: {log.name} has no step; write a log of steps that ran")
        log = RunLog(log.name, log.program, (log.mean,), caution=f"{log.program} prints the mean of the whole run only")
    job = None if ran is None else ran.launch.case.job
    gpus = None if ran is None else ran.launch.policy.gpus
    series = series_of(log, job.step_tokens if job else None, gpus, job.global_batch if job else None)
    pace = pace_of(series, log)
    phased = [step.phases for step in log.steps if step.phases is not None]
    compared = ran is not None and pace.exact and not phased
    found = why_log(pace, ran.expected if ran is not None and compared else None, clocks)
    return LogMeasured(
        log, pace, found, ran.whole(lengths_of(phased)) if ran is not None and ran.whole and phased else None
    )


def _rent(ran: RunAsMeant | None, traces: tuple[RankTrace, ...]) -> tuple[float, float] | None:
    """Of all GPUs of the run for a day: those that were stated, or those the trace names."""
    if ran is not None:
        return rent_a_day(ran.launch.case.cluster.gpu.name, ran.launch.policy.gpus)
    known = [(catalog_gpu(trace.device), trace.world) for trace in traces if trace.device]
    gpu, world = known[0] if known else (None, None)
    return rent_a_day(gpu, world or len(traces)) if gpu is not None else None
