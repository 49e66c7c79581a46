"""`shardwise search`: the best stages of a pipeline on one kind of GPU or two, by any of several methods."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.cli._flags import Asked, Flags, asked
from shardwise.cli._options import Json
from shardwise.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.cli.validate import write_whole
from shardwise.report.search_svg import search_svg
from shardwise.search.methods import (
    Comparison,
    Group,
    Method,
    Solution,
    StageProblem,
    compare,
    method_of,
    methods,
    stage_problem,
)
from shardwise.search.methods._contract import BUDGET
from shardwise.spec.load import cluster_of
from shardwise.units import gib, time_text

DOES_NOT_FIT = 1


@dataclass(frozen=True)
class _Space:
    ask: Asked
    clusters: str
    problem: StageProblem


def search(
    model: Annotated[str, Parameter(help="A catalog name, or a path to a Hugging Face config.json.")],
    /,
    flags: Flags,
    *,
    method: Annotated[str, Parameter(help="dp, ip, exhaustive (exact), zeroth or rl (seeded).")] = "dp",
    compare_all: Annotated[bool, Parameter(name="--compare", negative=(), help="All methods side by side.")] = False,
    mixed: Annotated[str | None, Parameter(help="A second cluster whose GPUs take part of the stages.")] = None,
    stages_on: Annotated[str | None, Parameter(help="Stages on each, as 8,8; default: by GPUs.")] = None,
    stage_tp: Annotated[str | None, Parameter(help="TP a stage may choose, as 2,4,8; default: --tp.")] = None,
    headroom: Annotated[float, Parameter(help="Share of a GPU's memory a stage may fill.")] = 1.0,
    seed: Annotated[int, Parameter(help="Of the methods that draw.")] = 0,
    budget: Annotated[int, Parameter(help="Assignments a method may price.")] = BUDGET,
    figure: Annotated[Path | None, Parameter(help="Quality against evaluations, as an .svg file.")] = None,
    json: Json = False,
) -> int:
    """Layers, recompute, GPUs and TP of each stage; --compare: quality against time and evaluations."""
    if figure is not None and figure.suffix != ".svg":
        raise ValueError(f"figure: {str(figure)!r} is no .svg file; write a name that ends in .svg")
    chosen = [method_of(method)]
    space = _space(model, flags, mixed, stages_on, stage_tp, headroom)
    notes = _notes(space)
    if compare_all:
        left_out = _left_out(space, budget)
        chosen = [m for m in methods().values() if m.name not in left_out]
        notes += [f"{name} is left out: {why}" for name, why in left_out.items()]
    with _bar(budget, len(chosen)) as progress:
        found = compare(space.problem, chosen, budget_evaluations=budget, seed=seed, progress=progress)
    best = min(found.solutions.values(), key=lambda solution: solution.step_s)
    if figure is not None:
        write_whole(figure, search_svg(found, f"{space.ask.model.name} on {space.clusters}").encode(), "figure")
        notes.append(f"figure: {figure}")
    if json:
        print_json(_data(space, found, best) | {"notes": notes})
    else:
        _show(space, chosen, found, best, notes)
    return 0 if best.assignment is not None else DOES_NOT_FIT


def _space(
    model: str, flags: Flags, mixed: str | None, stages_on: str | None, stage_tp: str | None, headroom: float
) -> _Space:
    ask = asked(model, flags)
    clusters = [ask.cluster] if mixed is None else [ask.cluster, cluster_of(mixed)]
    if mixed is not None and ask.profile is not None:
        raise ValueError("profile: it was measured on one kind of GPU; leave it out with --mixed")
    if stages_on is not None:
        counts = _numbers(stages_on, "stages-on")
        if len(counts) != len(clusters):
            raise ValueError(
                f"stages-on: {stages_on!r} has {len(counts)} numbers; write {len(clusters)}, one a cluster"
            )
    elif mixed is None:
        counts = [ask.policy.pp]
    else:
        gpus = [cluster.gpus for cluster in clusters]
        first = ask.policy.pp * gpus[0] / sum(gpus)
        if first != int(first) or ask.policy.pp < 2:
            raise ValueError(f"pp: {ask.policy.pp} stages cannot be shared as {gpus[0]}:{gpus[1]} GPUs; "
                             "write another --pp, or --stages-on 8,8")  # fmt: skip
        counts = [int(first), ask.policy.pp - int(first)]
    policy = ask.policy
    per_stage = clusters[0].gpus / max(counts[0], 1)
    if flags.dp is None and mixed is not None:
        policy = replace(policy, dp=max(int(per_stage) // (policy.tp * policy.cp), 1))
    if mixed is None and policy.gpus != ask.cluster.gpus:
        raise ValueError(f"dp: {policy.gpus} GPUs are used of {ask.cluster.gpus}; write degrees whose product is all")
    if ask.job.global_batch % (policy.dp * policy.micro_batch):
        raise ValueError(f"global-batch: {ask.job.global_batch} does not divide by dp {policy.dp} x micro "
                         f"{policy.micro_batch}; write another")  # fmt: skip
    groups = [Group(cluster, stages) for cluster, stages in zip(clusters, counts, strict=True)]
    degrees = () if stage_tp is None else _numbers(stage_tp, "stage-tp")
    problem = stage_problem(ask.model, groups, ask.job, policy, ask.stack, stage_tp=degrees, headroom=headroom,
                            profile=ask.profile)  # fmt: skip
    return _Space(ask, " + ".join(cluster.name for cluster in clusters), problem)


def _left_out(space: _Space, budget: int) -> dict[str, str]:
    """Methods a comparison cannot run here, and why."""
    found = {}
    if space.problem.points > budget:
        found["exhaustive"] = f"{_count(space.problem.points)} assignments, the budget is {budget:,}"
    if find_spec("scipy") is None:
        found["ip"] = "it needs scipy; install shardwise[fit]"
    return found


def _numbers(text: str, field: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < len(word) < 8 and int(word) > 0 for word in words):
        raise ValueError(f"{field}: {text[:40]!r} is no list of whole numbers above 0; write for example 2,4,8")
    return [int(word) for word in words]


def _count(points: int) -> str:
    return f"{points:,}" if points < 10**7 else f"{points:.1e}" if points < 10**300 else "more than 1e300"


def _notes(space: _Space) -> list[str]:
    notes = [
        *space.ask.notes,
        f"{_count(space.problem.points)} assignments; every stage recomputes as many layers as it must, no more",
        "step in closed form: (m - k) x slowest stage + k x all stages + what happens once",
    ]
    if len(space.problem.options) > 1:
        notes.append("stages of different kinds hand over as stages of one kind do: re-sharding and slower links "
                     "between them are not priced")  # fmt: skip
    return notes


@contextmanager
def _bar(budget: int, count: int) -> Iterator[Callable[[int, float], None] | None]:
    """A progress bar on stderr where someone watches it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("assignments" if count == 1 else "assignments, one method after another", total=budget)
        yield lambda done, _best: bar.update(task, completed=done)


def _show(space: _Space, chosen: list[Method], found: Comparison, best: Solution, notes: list[str]) -> None:
    title = f"{space.ask.model.name} on {space.clusters}: {space.problem.stages} stages"
    known = "no method proved one" if found.optimum_s is None else f"{time_text(found.optimum_s)}, proven"
    if found.optimum_s is None and found.bound_s is not None:
        known = f"not proven; no assignment is below {time_text(found.bound_s)}"
    even, fits = _even(space.problem)
    print_facts(title, [("even split", time_text(even) + ("" if fits else ", does not fit")), ("optimum", known)])
    print_gap()
    rows = [
        (m.name, time_text(s.step_s) if s.assignment else "none fits", _percent(found.gap(m.name)), s.evaluations,
         f"{s.seconds:.3g}", "yes" if s.proven else "no")
        for m in chosen for s in [found.solutions[m.name]]
    ]  # fmt: skip
    against = "above optimum" if found.optimum_s is not None else "above bound"
    print_table("methods", ["method", "step", against, "evaluations", "seconds", "proven"], rows)
    if best.assignment is not None:
        print_gap()
        _show_stages(space.problem, best)
    print_notes(notes)


def _show_stages(problem: StageProblem, best: Solution) -> None:
    held = best.assignment
    if held is None:
        return
    rows = []
    for stage, option in enumerate(held.options):
        own = problem.options[option]
        peak = gib(held.peak_bytes[stage])
        rows.append((str(stage), own.cluster, own.policy.tp, own.policy.dp, own.policy.micro_batch, held.layers[stage],
                     held.recomputed[stage], f"{held.stage_s[stage] * 1e3:,.1f}", peak))  # fmt: skip
    heads = ["stage", "on", "tp", "dp", "micro", "layers", "recompute", "ms", "GiB"]
    print_table("the best found", heads, rows, words=2)


def _percent(gap: float | None) -> str | None:
    return None if gap is None else f"{gap:.2%}"


def _even(problem: StageProblem) -> tuple[float, bool]:
    import numpy as np

    steps, over = problem.price(*(np.array([part], dtype=np.int64) for part in problem.even))
    return float(steps[0]), bool(over[0] == 0)


def _data(space: _Space, found: Comparison, best: Solution) -> dict[str, Any]:
    problem, held = space.problem, best.assignment
    even, fits = _even(problem)
    return {
        "model": space.ask.model.name, "clusters": space.clusters, "fits": held is not None, "stages": problem.stages,
        "points": problem.points if problem.points < 2**63 else float(min(problem.points, 10**300)),
        "micro_batches": problem.micro_batches, "even": {"step_s": even, "fits": fits},
        "optimum_s": found.optimum_s, "bound_s": found.bound_s,
        "methods": {
            name: {
                "objective_s": s.step_s if s.assignment else None, "gap": found.gap(name), "own_gap": s.gap,
                "bound_s": s.bound, "evaluations": s.evaluations, "seconds": s.seconds, "proven": s.proven,
                "trace": s.trace,
            } for name, s in found.solutions.items()
        },
        "best": None if held is None else {
            "step_s": best.step_s, "layers": held.layers, "recomputed_layers": held.recomputed, "stage_s": held.stage_s,
            "peak_bytes": held.peak_bytes,
            "stages": [{"on": o.cluster, "tp": o.policy.tp, "dp": o.policy.dp, "micro_batch": o.policy.micro_batch,
                        "limit_bytes": o.limit_bytes} for o in (problem.options[i] for i in held.options)],
        },
    }  # fmt: skip
