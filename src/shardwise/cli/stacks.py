"""`shardwise stacks`: the training programs shardwise knows, how far off its predictions are, where each constant is
from."""

from collections import Counter
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise import catalog
from shardwise.calibrate.overlay import curve_with
from shardwise.cli._options import Json
from shardwise.cli._output import Cell, print_facts, print_gap, print_json, print_notes, print_table
from shardwise.estimate.band import ErrorBand, FittedRuns, band_for, runs_of
from shardwise.software import Stack, known_stack, named
from shardwise.software.stack import part_of
from shardwise.spec.load import gpu_of

PLAIN = Stack(name="plain", summary="", source="", date="")
MOST_LISTED = 3
FEW_GPUS = 64
"""of the run a band is told for: as many as most programs were fitted on"""


def stacks(
    name: Annotated[str | None, Parameter(help="A stack, as --stack takes it.")] = None,
    /,
    *,
    gpu: Annotated[str, Parameter(help="GPU that the error is told for.")] = "h100",
    json: Json = False,
) -> None:
    """The training programs shardwise knows: errors, what each was fitted on, the origin of every constant."""
    if name is not None:
        _one(known_stack(name), gpu, json)
        return
    known = [known_stack(each) for each in catalog.names("stacks")]
    if json:
        print_json({"stacks": [_summary(stack, gpu) for stack in known]})
        return
    rows = sorted(known, key=lambda stack: (-_runs(stack).runs, stack.name))
    heads = ["stack", "runs", "up to GPUs", "80% within", "like"]
    print_table("training programs", heads, [_cells(stack, gpu) for stack in rows], bars=("runs",))
    print_notes([
        f"runs: published ones its constants were fitted on; within: measured over predicted step, on {FEW_GPUS} "
        f"{gpu_of(gpu).name} without experts; like: whose settings hold where it has none of its own",
        "`shardwise stacks NAME`: every constant and where it is from; `--stack NAME` in other verbs takes it",
    ])  # fmt: skip


def _runs(stack: Stack) -> FittedRuns:
    """Of its own, none of those it is like."""
    whose, runs = runs_of(stack)
    return runs if whose == stack.name else FittedRuns(0, 0, (), experts=False)


def _band(stack: Stack, gpu: str) -> ErrorBand:
    return band_for(named(stack), curve_with(gpu_of(gpu), None), gpus=FEW_GPUS, experts=False)


def _cells(stack: Stack, gpu: str) -> list[Cell]:
    band, runs = _band(stack, gpu), _runs(stack)
    within = f"{band.low:+.0%} .. {band.high:+.0%}"
    return [stack.name, runs.runs or None, runs.gpus or None, within, stack.like or None]


def _one(stack: Stack, gpu: str, json: bool) -> None:
    if json:
        print_json(_summary(stack, gpu) | {"settings": [_setting(stack, name) for name, _ in stack.origins]})
        return
    whose, runs = runs_of(stack)
    fitted = f"{runs.runs:,} runs of {whose}, up to {runs.gpus:,} GPUs, on {', '.join(runs.on)}" if runs.runs else None
    kinds = Counter(origin.kind for _, origin in stack.origins)
    facts: list[tuple[str, Cell]] = [
        ("what", stack.summary),
        ("source", f"{stack.source} ({stack.date})"),
        ("like", stack.like or None),
        ("software", ", ".join(stack.matches) or None),
        ("error", str(_band(stack, gpu))),
        ("fitted on", fitted),
        ("constants", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())),
        ("caution", stack.caution or None),
    ]
    print_facts(stack.name, [fact for fact in facts if fact[1] is not None])
    print_gap()
    names = sorted((name for name, _ in stack.origins), key=lambda name: (part_of(name), name))
    stated = [stack.origin(name).reference for name in names if stack.origin(name).kind != "read"]
    references = list(dict.fromkeys(stated))
    rows = [_row(stack, name, references) for name in names]
    print_table("settings that are not shardwise's defaults", ["setting", "value", "origin"], rows, words=3, breaks=2)
    print_notes([f"[{number}] {reference}" for number, reference in enumerate(references, 1)], title="origins")


def _row(stack: Stack, name: str, references: list[str]) -> list[Cell]:
    origin = stack.origin(name)
    whose = "" if origin.stack in ("", stack.name) else f" (of {origin.stack})"
    reference = "" if origin.kind == "read" else f" [{references.index(origin.reference) + 1}]"
    return [f"{part_of(name)}.{name}", _text(stack.setting(name)), f"{origin.kind}{reference}{whose}"]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return f"{len(value)} of them" if len(value) > MOST_LISTED else ", ".join(map(str, value))
    return str(value)


def _summary(stack: Stack, gpu: str) -> dict[str, Any]:
    band, runs = _band(stack, gpu), _runs(stack)
    return {
        "name": stack.name, "summary": stack.summary, "source": stack.source, "date": stack.date,
        "like": stack.like or None, "matches": stack.matches, "fitted_runs": runs.runs, "fitted_gpus": runs.gpus,
        "fitted_on": runs.on, "error_range": (band.low, band.high), "error_basis": str(band),
        "caution": stack.caution or None,
    }  # fmt: skip


def _setting(stack: Stack, name: str) -> dict[str, Any]:
    origin = stack.origin(name)
    return {
        "setting": f"{part_of(name)}.{name}", "value": stack.setting(name), "default": PLAIN.setting(name),
        "origin": origin.kind, "reference": origin.reference, "stack": origin.stack,
    }  # fmt: skip
