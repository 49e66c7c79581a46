"""`shardwise auto`: the user's own model understood, planned for a cluster, proven on a small copy, and run."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from msgspec import Struct

from shardwise.arch.traced import traced_config
from shardwise.cli._files import Overwrite
from shardwise.cli._html import draw
from shardwise.cli._options import Json
from shardwise.cli._output import Cell, print_facts, print_json, print_notes
from shardwise.cli._progress import spoken
from shardwise.cli.prove import MOST_BYTES, cuts_of, draw_shares, facts_of
from shardwise.fields import read_file
from shardwise.plan.constraints import constraints_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of
from shardwise.units import time_text
from shardwise.whole_file import OutputFile

DOES_NOT_HOLD = 1
MOST_RANKS, MOST_STEPS, PROOF_STEPS = 16, 1000, 20
GIB = 2.0**30
MARK = b'{"degrees":'
"""how a plan begins"""
MODEL_MARK = b'{"model_type":"traced"'
"""how a model begins"""


class Made(Struct, frozen=True, kw_only=True):
    """What came of it besides: losses of training, or torch code."""

    losses: tuple[float, ...] = ()
    code: str = ""


def auto(
    script: Annotated[Path, Parameter(help="Your Python file with build, batch and step; its code is run.")],
    /,
    *,
    on: Annotated[str, Parameter(help="The cluster: dgx-h100:1024, 8xh100 or a YAML file.")],
    fix: Annotated[
        list[str] | None, Parameter(negative=(), help="Only such splits: tp=2, 'pp<=2'; may repeat.")
    ] = None,
    device: Annotated[
        str, Parameter(help="none: plan and prove; cpu: train too, with gloo ranks of this machine.")
    ] = "none",
    steps: Annotated[int, Parameter(help="Steps to train with --device cpu.")] = 10,
    explain: Annotated[
        bool, Parameter(negative=(), help="Print the split as torch code that runs without shardwise.")
    ] = False,
    out: Annotated[Path | None, Parameter(help="Write the plan here, for `prove` and `shardwise.parallelize`.")] = None,
    model_out: Annotated[
        Path | None, Parameter(help="Write the planner's model of it here, for estimate, plan, simulate and others.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """The fastest split of your own model that can be made, proven equal to one process before it is run."""
    cluster = cluster_of(on)
    if device not in ("none", "cpu"):
        raise ValueError(f"device: {device!r} is unknown; write none or cpu (on GPUs use what --explain prints)")
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps: {steps} is out of range; write 1 to {MOST_STEPS:,}")
    if device == "cpu" and cluster.gpus > MOST_RANKS:
        raise ValueError(f"on: {cluster.gpus:,} ranks on this machine; with --device cpu write at most {MOST_RANKS}")
    file = None if out is None else OutputFile(out, "out", MARK, overwrite)
    shape = None if model_out is None else OutputFile(model_out, "model-out", MODEL_MARK, overwrite)
    constraints_of(fix or ())
    read_file(script, "script", MOST_BYTES, "the path of a Python file")  # before torch takes its seconds
    if find_spec("torch") is None:
        raise ValueError("auto needs torch, which is not installed; write pip install 'shardwise[run]'")
    from shardwise.auto.explain import explained

    with spoken() as said:
        choice, proof, losses = _made(script, cluster, fix or [], steps if device == "cpu" else 0, said)
    code = explained(choice.plan) if explain else ""
    if file is not None:
        file.write(msgspec.json.encode(choice.plan))
    if shape is not None:
        if choice.model is None:
            raise ValueError(f"model-out: the planner has no model of it ({choice.prediction.unknown}); leave it out")
        shape.write(msgspec.json.encode(traced_config(choice.model)))
    if json:
        print_json({"script": script.name, "cluster": cluster.name, "split": choice.plan.degrees, "holds": proof.equal,
                    "proof": proof, "prediction": choice.prediction, "cuts": cuts_of(choice.plan),
                    "not_cut": choice.plan.all_refusals, "made": Made(losses=tuple(losses), code=code)})  # fmt: skip
    elif code:
        print(code, end="")
    else:
        print_facts(f"{script.name} on {cluster.name}", _facts(choice, proof, losses))
        draw_shares(choice.plan)
        if losses:
            draw(lambda: _losses_svg(losses))
        print_notes([f"{each.where}: {each.why}" for each in choice.plan.all_refusals], title="not cut")
        print_notes(choice.prediction.passed_over, title="faster, but not made")
    return 0 if proof.equal and choice.prediction.fits else DOES_NOT_HOLD


def _made(
    script: Path, cluster: Cluster, fix: list[str], steps: int, said: Callable[[str], None]
) -> tuple[Any, Any, list[float]]:
    """The choice, its proof on a small copy, and the losses of so many steps."""
    from shardwise.auto.choose import chosen
    from shardwise.auto.prove import plan_of, proven, truth_of
    from shardwise.auto.script import opened, program_in
    from shardwise.auto.small import few_blocks, few_ranks
    from shardwise.auto.trained import trained
    from shardwise.auto.watch import samples_of

    with opened(script) as (read, names):
        said("understanding the model")
        program = program_in(read, names, PROOF_STEPS, "float64")
        choice = chosen(program, cluster, fix)
        said(f"proving {choice.plan.degrees.text} on a small copy")
        fewer = few_ranks(choice.plan.degrees, samples_of(program.batches[0]))
        small = few_blocks(program, fewer)
        truth = truth_of(small)
        proof = proven(small, plan_of(small, fewer), truth)
        if not steps or not proof.equal:
            return choice, proof, []
        said(f"training {steps} steps on {choice.plan.degrees.ranks} ranks")
        whole = program_in(read, names, steps - 1, "float32")
        return choice, proof, trained(whole, choice.plan, truth.clips)


def _losses_svg(losses: list[float]) -> str:
    from shardwise.charts import chart_svg
    from shardwise.report.course_figure import course_chart

    return chart_svg(course_chart("loss of the split model", [("loss", [("loss", list(enumerate(losses)))])], "step"))


def _facts(choice: Any, proof: Any, losses: list[float]) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [("split", f"{choice.plan.degrees.text} ({choice.plan.degrees.ranks} ranks)")]
    told = choice.prediction
    if told.step_s is not None:
        peak = told.peak_bytes / GIB
        facts.append(("predicted", f"{time_text(told.step_s)} a step, {peak:,.2f} GiB on the fullest GPU"))
    if told.unknown:
        facts.append(("predicted", f"nothing: {told.unknown}"))
    facts.append(("proof", f"{proof.plan} on {proof.ranks} ranks of this machine, a small copy"))
    facts += facts_of(proof, choice.plan)
    if losses:
        facts.append(("trained", f"{len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}"))
    return facts
