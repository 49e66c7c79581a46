"""`shardwise simulate`: one policy's step in time - every schedule compared, who waits, what fills the memory when."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from shardwise.plan.that_fit import policies_that_fit
from shardwise.programs.exporters.chakra import GROUPS, NAME, chakra_files, trace_name
from shardwise.programs.exporters.chrome_trace import trace_events
from shardwise.programs.exporters.trace_events import trace_file, write_events
from shardwise.question import PolicyQuestion
from shardwise.report.terminal import policy_text
from shardwise.report.tier import SIMULATION
from shardwise.report.timeline_figure import timeline_svg
from shardwise.report.timeline_page import timeline_page
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._flags import DOES_NOT_FIT, Flags, asked, leave_out, on_of, print_origin, refused
from shardwise.show.cli._folder import check_folder, write_into
from shardwise.show.cli._html import draw
from shardwise.show.cli._options import Json, ModelName, within
from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._spans import spans_data
from shardwise.show.cli._that_fit import print_that_fit, that_fit_data
from shardwise.step.estimate.band import NO_BAND, band_of
from shardwise.step.simulate import Jitter, Simulation, Timeline
from shardwise.step.simulate import simulate as simulated
from shardwise.step.simulate.agree import Gap, gap_of
from shardwise.step.simulate.compare import compare
from shardwise.step.simulate.gantt import gantt, legend
from shardwise.step.simulate.noise import straggler_of
from shardwise.step.simulate.outcome import ScheduleOutcome
from shardwise.step.simulate.timeline import Peak
from shardwise.units import memory_text, size_unit, time_text

SLICES = 64
"""parts of the pipeline's time for which the share of active GPUs is told"""
TraceFile = Annotated[Path | None, Parameter(help="Write a trace for Perfetto: FILE.json or FILE.json.gz.")]
ChakraFolder = Annotated[
    Path | None, Parameter(help="Write execution traces for ASTRA-sim, one for each rank, into this folder.")
]
FigureFile = Annotated[Path | None, Parameter(help="Draw the step: FILE.svg, or FILE.html with the schedules' table.")]


def simulate(
    model: ModelName,
    /,
    flags: Flags,
    *,
    trace: TraceFile = None,
    chakra: ChakraFolder = None,
    figure: FigureFile = None,
    straggler: Annotated[str | None, Parameter(help="stage=2,factor=1.2 or link=2,factor=3; replicas=4.")] = None,
    jitter: Annotated[float | None, Parameter(help="Spread of every task's time, such as 0.05.")] = None,
    tail: Annotated[
        str, Parameter(help="Shape of the jitter: lognormal, or exponential (only adds time).")
    ] = "lognormal",
    steps: Annotated[int, Parameter(help="Steps simulated with jitter.")] = 200,
    seed: Annotated[int, Parameter(help="Seed of the jitter: the same seed gives the same steps.")] = 0,
    slices: Annotated[int, Parameter(help="Parts of the pipeline's time in `active`."), within(1, 100_000)] = SLICES,
    spans: Annotated[bool, Parameter(help="With --json: every task, and the memory over time.")] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """A training step in time: schedules compared, bubble, memory over time, stragglers, jitter, a trace."""
    leave_out("simulate", "follows a step of sequences that are all as long as --seq", flags, "lengths", "packing")
    leave_out("simulate", "follows a step with the mean gradient", flags, "sync")
    ask = asked(model, flags)
    slow = [] if straggler is None else [straggler_of(straggler)]
    varies = None if jitter is None else Jitter(share=jitter, steps=steps, seed=seed, tail=tail)
    if figure is not None and figure.suffix not in (".svg", ".html"):
        raise ValueError(f"figure: {figure.name!r}; write a name that ends in .svg or .html")
    picture, written = figure_file(figure, overwrite), trace and trace_file(trace, "trace", overwrite)
    if chakra is not None:
        check_folder(chakra, [GROUPS, *map(trace_name, range(ask.policy.gpus))], "chakra", overwrite)
    if refused(model, on_of(flags), ask, json):
        return DOES_NOT_FIT
    case = ask.case
    found = simulated(case, ask.policy, stragglers=slow)
    if chakra is not None:
        write_into(chakra, chakra_files(found), "chakra", overwrite)
    timeline = found.timeline()
    rows = compare(case, ask.policy)
    samples = None if varies is None else found.step_samples(varies)
    if written:
        write_events(trace_events(timeline), written, f"{ask.model.name} on {ask.cluster.name}")
    room = ask.cluster.gpu.memory_bytes - ask.case.stack.memory.reserve_bytes
    if picture is not None:
        picture.write(_drawn(ask, timeline, rows, room, picture.path.suffix).encode())
    fits = max(peak.bytes for peak in timeline.peaks()) <= room
    fitting = [] if fits else policies_that_fit(case, ask.policy)
    if json:
        near: dict[str, Any] = {"that_fit": that_fit_data(fitting, gap_of(found).closed_s)}
        near |= {"spans": spans_data(timeline, room)} if spans else {}
        print_json(_document(ask, found, timeline, rows, samples, fits, slices) | near)
    else:
        notes = print_origin(ask)
        draw(lambda: _drawn(ask, timeline, rows, room, ".svg"))
        _show(ask, found, timeline, rows, samples, fits)
        if not fits:
            print_that_fit(case, ask.policy, fitting, gap_of(found).closed_s)
        print_notes([*notes, *_assumptions(found, straggler)])
        if trace is not None:
            print(f"trace: {trace} (open in ui.perfetto.dev)")
        if chakra is not None:
            print(f"chakra: {chakra}/{NAME}.RANK.et, groups in {GROUPS}")
        if figure is not None:
            print(f"figure: {figure} (open in a browser)")
    return 0 if fits else DOES_NOT_FIT


def _drawn(ask: PolicyQuestion, timeline: Timeline, rows: list[ScheduleOutcome], room: float, suffix: str) -> str:
    title = f"{ask.model.name} on {ask.cluster.name}: {policy_text(ask.policy)}, schedule {ask.policy.schedule}"
    svg = timeline_svg(timeline, title=title, limit_bytes=room)
    if suffix == ".svg":
        return svg
    return timeline_page(svg, rows, title=title, shown=ask.policy.schedule, limit_bytes=room)


def _document(
    ask: PolicyQuestion,
    found: Simulation,
    timeline: Timeline,
    rows: list[ScheduleOutcome],
    samples: Any,
    fits: bool,
    slices: int,
) -> dict[str, Any]:
    gap = gap_of(found)
    peaks = timeline.peaks()
    band = band_of(ask.case)
    low, high = (None, None) if band is None else band.around(found.step_s)
    return {
        "legal": True, "fits": fits, "tier": SIMULATION, "model": ask.model.name, "cluster": ask.cluster.name,
        "gpus": ask.policy.gpus, "stack": ask.stack.name, "seq_tokens": ask.job.seq,
        "global_sequences": ask.job.global_batch, "policy": ask.policy, "schedule": ask.policy.schedule,
        "micro_batches": found.program.micro_batches, "tasks": len(found.program.rank) * len(found.pipelines),
        "rank_classes": timeline.ranks, "step_s": found.step_s, "step_low_s": low, "step_high_s": high,
        "error_basis": NO_BAND if band is None else str(band), "pipeline_s": found.pipeline_end_s,
        "bubble_share": timeline.bubble_share(), "idle_share": timeline.idle_share(),
        "active": timeline.active(slices).tolist(),
        "busy_share": timeline.busy_share().tolist(), "peak_bytes": _per_stage(timeline, peaks),
        "peaks": [{"stage": int(stage), "time_s": peak.time_s, "bytes": peak.bytes, "kinds_bytes": peak.kinds}
                  for stage, peak in zip(timeline.stage, peaks, strict=True)],
        "schedules": rows, "closed_form": {"step_s": gap.closed_s, "gap": gap.share, "parts_s": gap.parts_s,
                                           "why": gap.why},
        "jitter": None if samples is None else _percentiles(samples), "policy_origin": ask.origin, "notes": ask.notes,
    }  # fmt: skip


def _per_stage(timeline: Timeline, peaks: list[Peak]) -> list[float]:
    """The fullest of the classes that hold a stage."""
    most = np.zeros(int(timeline.stage.max()) + 1)
    np.maximum.at(most, timeline.stage, [peak.bytes for peak in peaks])
    return most.tolist()


def _percentiles(samples: Any) -> dict[str, float]:
    low, high = np.quantile(samples, [0.5, 0.99])
    return {"steps": len(samples), "mean_s": float(samples.mean()), "p50_s": float(low), "p99_s": float(high)}


def _show(
    ask: PolicyQuestion, found: Simulation, timeline: Timeline, rows: list[ScheduleOutcome], samples: Any, fits: bool
) -> None:
    gap = gap_of(found)
    peaks = timeline.peaks()
    fullest = max(range(len(peaks)), key=lambda rank: peaks[rank].bytes)
    facts: list[tuple[str, str | int | float | None]] = [
        ("policy", f"{policy_text(ask.policy)}, schedule {ask.policy.schedule}"),
        ("step", f"{time_text(gap.simulated_s)}; closed form {time_text(gap.closed_s)} ({gap.share:+.1%} simulated)"),
        ("error", str(band_of(ask.case) or NO_BAND)),
        (
            "pipeline",
            f"{found.program.micro_batches:,} micro-batches, bubble {timeline.bubble_share():.1%} of the step; "
            f"an average GPU idle {timeline.idle_share():.1%}",
        ),
        ("memory", _peak_text(peaks[fullest], int(timeline.stage[fullest]), fits)),
    ]
    if found.step_s != gap.simulated_s:
        slower = found.step_s / gap.simulated_s - 1.0
        facts.insert(3, ("straggler", f"step {time_text(found.step_s)}, {slower:+.1%}"))
    if samples is not None:
        told = _percentiles(samples)
        facts.append(
            ("jitter", f"{told['steps']:,} steps: p50 {time_text(told['p50_s'])}, p99 {time_text(told['p99_s'])}")
        )
    print_facts(f"{ask.model.name} on {ask.cluster.name}: one step in time", facts)
    print_gap()
    for line in (*gantt(timeline), *legend(timeline)):
        print(line)
    print_gap()
    _table(rows)
    _explain(gap)


def _waiting(timeline: Timeline) -> str:
    return f"bubble {timeline.bubble_share():.1%} of the step, an average GPU idle {timeline.idle_share():.1%}"


def _table(rows: list[ScheduleOutcome]) -> None:
    can, cannot = [r for r in rows if r.step_s is not None], [r for r in rows if r.step_s is None]
    unit = size_unit(max((r.peak_bytes or 0.0 for r in can), default=0.0))
    print_table(
        "schedules, no stragglers",
        ["schedule", "chunks", "step ms", "bubble", "idle", f"peak {unit.name}", "closed form ms"],
        [(r.schedule, r.vpp, f"{(r.step_s or 0) * 1e3:,.1f}", f"{r.bubble_share:.1%}", f"{r.idle_share:.1%}",
          unit.text(r.peak_bytes or 0), f"{(r.closed_form_s or 0) * 1e3:,.1f}") for r in can],
    )  # fmt: skip
    print_notes([f"{r.schedule}: {r.why_not}" for r in cannot], title="cannot run this")


def _explain(gap: Gap) -> None:
    print_notes(gap.why, title=f"why simulation and closed form differ by {gap.share:+.1%}")


def _peak_text(peak: Peak, stage: int, fits: bool) -> str:
    largest = sorted(((size, kind) for kind, size in peak.kinds.items() if size > 0), reverse=True)
    parts = ", ".join(f"{kind} {memory_text(size)}" for size, kind in largest[:4])
    return f"{memory_text(peak.bytes)} on stage {stage} ({parts})" + ("" if fits else ": does not fit")


def _assumptions(found: Simulation, straggler: str | None) -> list[str]:
    lines = [
        f"equal GPUs are one: {len(found.pipelines) * found.program.pp} classes stand for {found.policy.gpus:,} GPUs",
        "a forward allocates its saved activations at its start, a backward frees it at its end",
        "bubble: the busiest GPU waits for other stages; idle: an average GPU waits, also for those with more to do",
    ]
    if found.costs.hidden_share < 1 and (found.costs.overlap_grad or found.costs.overlap_param):
        lines.append(
            f"overlap: at most {found.costs.hidden_share:.0%} of a collective hides, and slows compute by "
            f"{found.costs.slowdown:.0%} of that"
        )
    if straggler is not None:
        lines.append("a slow GPU holds up its tensor-parallel group; other pipelines wait for it in the reduction")
        if len(found.pipelines) > 1:
            lines.append("lines with a star are the pipelines with the straggler")
    return lines
