"""`shardwise simulate`: one policy's step in time - every schedule compared, who waits, what fills the memory when."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.simulate import simulate_answer
from shardwise.programs.exporters.chakra import GROUPS, NAME, chakra_files, trace_name
from shardwise.programs.exporters.chrome_trace import trace_events
from shardwise.programs.exporters.trace_events import trace_file, write_events
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._flags import (
    DOES_NOT_FIT,
    Flags,
    StageLayers,
    asked,
    leave_out,
    on_of,
    refused,
    with_stage_layers,
)
from shardwise.show.cli._folder import check_folder, write_into
from shardwise.show.cli._options import Json, ModelName, within
from shardwise.show.cli._output import answered
from shardwise.step.simulate import Jitter
from shardwise.step.simulate import simulate as simulated
from shardwise.step.simulate.noise import straggler_of

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
    stage_layers: StageLayers = "",
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """A training step in time: schedules compared, bubble, memory over time, stragglers, jitter, a trace."""
    leave_out("simulate", "follows a step of sequences that are all as long as --seq", flags, "lengths", "packing")
    leave_out("simulate", "follows a step with the mean gradient", flags, "sync")
    ask = with_stage_layers(asked(model, flags), stage_layers)
    slow = [] if straggler is None else [straggler_of(straggler)]
    varies = None if jitter is None else Jitter(share=jitter, steps=steps, seed=seed, tail=tail)
    if figure is not None and figure.suffix not in (".svg", ".html"):
        raise ValueError(f"figure: {figure.name!r}; write a name that ends in .svg or .html")
    picture, written = figure_file(figure, overwrite), trace and trace_file(trace, "trace", overwrite)
    if chakra is not None:
        check_folder(chakra, [GROUPS, *map(trace_name, range(ask.policy.gpus))], "chakra", overwrite)
    if refused(model, on_of(flags), ask, json):
        return DOES_NOT_FIT
    found = simulated(ask.case, ask.policy, stragglers=slow)
    if chakra is not None:
        write_into(chakra, chakra_files(found), "chakra", overwrite)
    answer = simulate_answer(ask, found, straggler=bool(slow), jitter=varies, slices=slices, spans=spans and json)
    wrote = {}
    if trace is not None and written:
        write_events(trace_events(answer.timeline), written, f"{ask.model.name} on {ask.cluster.name}")
        wrote["trace"] = f"{trace} (open in ui.perfetto.dev)"
    if chakra is not None:
        wrote["chakra"] = f"{chakra}/{NAME}.RANK.et, groups in {GROUPS}"
    if picture is not None:
        picture.write((answer.svg() if picture.path.suffix == ".svg" else answer.page()).encode())
        wrote["figure"] = f"{figure} (open in a browser)"
    return answered(answer, json, wrote=wrote)
