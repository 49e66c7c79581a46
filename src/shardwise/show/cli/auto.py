"""`shardwise auto`: the user's own models understood, planned for a cluster, proven on a small copy, and run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.answers.auto import AutoAnswer, Made, RefusedProgram, SeveralAnswer, auto_answer, several_answer
from shardwise.fields import read_file
from shardwise.plan.constraints import constraints_of
from shardwise.question.job import DEFAULT_PRECISION, job_of
from shardwise.refusal import is_refusal
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import one_by_one, spoken
from shardwise.show.cli._torch import needs_torch
from shardwise.show.cli.prove import MOST_BYTES
from shardwise.spec.arch import config_of, model_of
from shardwise.spec.arch.traced import traced_config
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import precision_of
from shardwise.spec.load import cluster_of
from shardwise.whole_file import OutputFile

if TYPE_CHECKING:
    from shardwise.run.auto.answer import SplitProgram
    from shardwise.run.auto.choose import Choice

MOST_RANKS, MOST_STEPS = 16, 1000
MARK = b'{"degrees":'
"""how a plan begins"""
MODEL_MARK = b'{"model_type":"traced"'
"""how a model begins"""


def auto(
    *scripts: Annotated[
        str,
        Parameter(
            name="SCRIPT",
            help="Your Python files with build, batch and step, whose code is run; or a model as for `plan`, built by "
            "transformers.",
        ),
    ],
    on: Annotated[str, Parameter(help="The cluster: dgx-h100:1024, 8xh100 or a YAML file.")],
    fix: Annotated[
        list[str] | None, Parameter(negative=(), help="Only such splits: tp=2, 'pp<=2'; may repeat.")
    ] = None,
    seq: Annotated[
        str | None, Parameter(help="Tokens of a sample, where a model is named in place of a script.")
    ] = None,
    global_batch: Annotated[str | None, Parameter(help="Samples of its step, or '4M tokens'.")] = None,
    device: Annotated[
        str, Parameter(help="none: plan and prove; cpu: train too, with gloo ranks of this machine.")
    ] = "none",
    steps: Annotated[int, Parameter(help="Steps to train with --device cpu."), within(1, MOST_STEPS)] = 10,
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
    _check(scripts, device, cluster)
    constraints_of(fix or ())
    for name, value in (("explain", explain), ("out", out), ("model-out", model_out)):
        if value and len(scripts) > 1:
            raise ValueError(f"{name}: {len(scripts)} scripts are named; with --{name} write one")
    file = None if out is None else OutputFile(out, "out", MARK, overwrite)
    shape = None if model_out is None else OutputFile(model_out, "model-out", MODEL_MARK, overwrite)

    def asked(text: str) -> _Asked:
        return _asked(text, (seq, global_batch), cluster)

    def made(what: _Asked, said: Callable[[str], None]) -> "SplitProgram":
        return _made(what, cluster, fix or [], steps if device == "cpu" else 0, said)

    only = asked(scripts[0]) if len(scripts) == 1 else None
    needs_torch("auto")
    if only is None:
        return answered(_several(scripts, lambda text: made(asked(text), lambda _: None), cluster), json)
    with spoken() as said:
        found = made(only, said)
    _write(found.choice, file, shape)
    return answered(_answer(only.name, cluster, found, explain=explain), json)


def _write(choice: "Choice", file: OutputFile | None, shape: OutputFile | None) -> None:
    if file is not None:
        file.write(msgspec.json.encode(choice.plan))
    if shape is not None:
        if choice.model is None:
            why = choice.prediction.unknown
            raise ValueError(f"model-out: the planner has no model of it ({why}); leave it out")
        shape.write(msgspec.json.encode(traced_config(choice.model)))


def _check(scripts: Sequence[str], device: str, cluster: Cluster) -> None:
    if not scripts:
        raise ValueError("script: none is named; write the path of a Python file with build, batch and step")
    if device not in ("none", "cpu"):
        raise ValueError(f"device: {device!r} is unknown; write none or cpu (on GPUs use what --explain prints)")
    if device == "cpu" and cluster.gpus > MOST_RANKS:
        raise ValueError(f"on: {cluster.gpus:,} ranks on this machine; with --device cpu write at most {MOST_RANKS}")


@dataclass(frozen=True)
class _Asked:
    """A script, or the configuration of a model with the job it is trained for."""

    name: str
    path: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 0
    tokens: int = 0


def _asked(text: str, sizes: tuple[str | None, str | None], cluster: Cluster) -> _Asked:
    """Read before torch takes its seconds."""
    path = Path(text)
    if path.suffix == ".py" or _is_text(path):
        given = [name for name, size in zip(("seq", "global-batch"), sizes, strict=True) if size is not None]
        if given:
            raise ValueError(f"{given[0]}: {path.name} has a function `batch`, which says it; leave --{given[0]} out")
        read_file(path, "script", MOST_BYTES, "the path of a Python file")
        return _Asked(path.name, path)
    config, name = config_of(text)
    job, _ = job_of(model_of(text), *sizes, precision_of(DEFAULT_PRECISION), "adamw", None, gpus=cluster.gpus)
    return _Asked(name, None, config, job.global_batch, job.seq)


def _is_text(path: Path) -> bool:
    """A file that is no configuration: whatever its name, it is taken for a script."""
    try:
        return path.is_file() and path.suffix != ".json"
    except (OSError, ValueError):  # no name that a file can have
        return False


def _several(scripts: Sequence[str], answer: Callable[[str], "SplitProgram"], cluster: Cluster) -> SeveralAnswer:
    """Each in turn; one that is not taken says why in its place and stops no other."""
    answers: list[AutoAnswer | RefusedProgram] = []
    with one_by_one("auto") as progress:
        for done, text in enumerate(scripts):
            name = Path(text).name
            progress(name, done, len(scripts))
            try:
                answers.append(_answer(name, cluster, answer(text)))
            except ValueError as error:
                if not is_refusal(error):
                    raise
                why = str(error).removeprefix(name).removeprefix(":").strip()
                answers.append(RefusedProgram(script=name, refused=why))
    return several_answer(cluster.name, answers)


def _answer(name: str, cluster: Cluster, found: "SplitProgram", *, explain: bool = False) -> AutoAnswer:
    code, choice = "", found.choice
    if explain:
        from shardwise.run.auto.explain import explained

        code = explained(choice.plan)
    made = Made(losses=tuple(found.losses), code=code)
    return auto_answer(name, cluster.name, choice.plan, choice.prediction, found.proof, made)


def _made(asked: _Asked, cluster: Cluster, fix: list[str], steps: int, said: Callable[[str], None]) -> "SplitProgram":
    from shardwise.run.auto.answer import answered as split
    from shardwise.run.auto.from_config import config_source, telling
    from shardwise.run.auto.script import opened, source_in

    if asked.path is None:
        with telling(asked.name):
            source = config_source(asked.config, asked.name, asked.samples, asked.tokens)
            return split(source, cluster, fix, steps, said)
    with opened(asked.path) as (read, names):
        return split(source_in(read, names), cluster, fix, steps, said)
