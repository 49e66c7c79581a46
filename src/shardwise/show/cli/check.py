"""`shardwise check`: what a launch script or configuration says, whether it can run and fits, and what is faster."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers._assumed import assumptions_of
from shardwise.answers.check import CheckAnswer, FileChange, check_answer, launch_of, rollout_answer
from shardwise.fields import short
from shardwise.programs.formats import Format, Known, Launch, model_called, question_of_launch, read_documents, settled
from shardwise.programs.formats._fix import fixed
from shardwise.programs.formats._rollout_question import trainers_of
from shardwise.programs.formats._source import STDIN, Document, open_document
from shardwise.question.legal import legal_of
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._fixed import FixedPlace
from shardwise.show.cli._flags import on_of
from shardwise.show.cli._logged_run import after_logs
from shardwise.show.cli._options import ACTS, Json, PrecisionName, flags
from shardwise.show.cli._output import answered
from shardwise.spec.arch import model_of
from shardwise.spec.load import cluster_of
from shardwise.spec.parameters import CaseOptions


@flags
class CaseFlags(CaseOptions):
    """The policy is in the file."""

    precision: PrecisionName = None


NO_FLAGS = CaseFlags()


def check(
    files: Annotated[
        list[Path],
        Parameter(help="Launch scripts and configurations that belong together; /dev/stdin: piped in."),
    ],
    /,
    given: CaseFlags = NO_FLAGS,
    *,
    model: Annotated[str | None, Parameter(help="Catalog name or config.json; default: the shape in the file.")] = None,
    on: Annotated[str | None, Parameter(help="The cluster it is launched on: dgx-h100:1024, 8xh100, ...")] = None,
    target: Annotated[str, Parameter(help="The program of the file; default: recognised by its settings.")] = "",
    set_: Annotated[
        list[str] | None,
        Parameter(name="--set", help="NAME=VALUE of a variable that a script is started with; 1=VALUE: its argument."),
    ] = None,
    answers: Annotated[
        str, Parameter(help="Lengths of answers, for a file of reinforcement learning: MEAN,CAP, a name or a file.")
    ] = "",
    log: Annotated[
        list[Path] | None,
        Parameter(consume_multiple=True, help="Logs of runs of these files: they correct the prediction and its band."),
    ] = None,
    fix: Annotated[
        bool, Parameter(negative=(), help="Make the best change in the files, and show it as a diff.")
    ] = False,
    whole_plan: Annotated[
        bool, Parameter(negative=(), help="With --fix: the best policy of a whole plan, not one setting.")
    ] = False,
    out: Annotated[Path | None, ACTS, Parameter(help="With --fix: where the changed file is written.")] = None,
    in_place: Annotated[
        bool, ACTS, Parameter(negative=(), help="With --fix and --overwrite: the files themselves change.")
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """What it says, what of that is not modelled, whether it is legal and fits, and the cheapest improvements."""
    if not files:
        raise ValueError("files: none named; write the path of a launch script or configuration")
    if fix and STDIN in files:
        raise ValueError("files: piped input has no file to change; write its path, or leave --fix out")
    place = FixedPlace(fix, whole_plan, out, in_place, overwrite)
    cluster = None if on is None else cluster_of(on_of(given, on))
    shape = None if model is None else model_of(model)
    known = Known(cluster.gpus if cluster else None, shape.layers if shape else None)
    variables = _variables(set_ or [])
    documents = [open_document(path, given=variables) for path in files]
    form, found = read_documents(documents, known, target)
    if shape is None and found.model is None and (shape := model_called(found.called)) is not None:
        form, found = read_documents(documents, Known(known.gpus, shape.layers), target)
        found = replace(found, notes=(*found.notes, f"{found.called} is taken as {shape.name} of the catalog"))
    notes, ask = list(found.notes), None
    shape = shape or found.model
    if fix and form.write is None:
        raise ValueError(f"fix: files of {form.title} are read, not written; leave --fix out")
    if shape is None or cluster is None:
        missing = " and ".join(flag for flag, value in (("--model", shape), ("--on", cluster)) if value is None)
        if log:
            raise ValueError(f"log: a step has nothing to be compared with; write {missing}")
        if fix:
            raise ValueError(f"fix: whether a change is better is not known; write {missing}")
        notes.append(f"not judged: write {missing} to learn whether it is legal, fits and could be faster")
    else:
        ask = question_of_launch(form, found, shape, trainers_of(found, cluster), given)
        notes = list(ask.notes)
        if found.layers:
            notes.append("layers that differ from stage to stage are read, not priced: an even split is judged")
        if legal_of(ask.case, ask.policy, cure=False).legal:
            if log:
                ask, said = after_logs(ask, log)
                notes += said
            notes += map(str, assumptions_of(ask, ask.case, ask.policy))
    called = model or (shape.name if shape else "")
    steps = None
    if found.rollout is not None and shape is not None and cluster is not None:
        steps, said = rollout_answer(
            form, found, shape, cluster, answers, model=called, on=on or "", profile=given.profile
        )
        notes += said
    elif answers:
        raise ValueError(
            f"answers: {answers!r}, but nothing is rolled out or judged; leave it out, or write --model and --on"
        )
    answer = check_answer(form, found, ask, model=called, on=on or "", notes=notes, posttrain=steps)
    if fix and ask is not None:
        done = _fixed(form, documents, launch_of(found, ask, called), answer, place)
        notes += done.notes if done else ["fix: nothing that this program can state is better; no file is changed"]
        answer = with_fields(answer, fix=done, notes=notes)
    return answered(answer, json)


def _variables(pairs: list[str]) -> dict[str, str]:
    """NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w{0,99}|[1-9]\d?", name):
            raise ValueError(
                f"set: {short(pair)} is not NAME=VALUE; write one such as TP=4, or 1=VALUE for an argument"
            )
        if found.setdefault(name, value) != value:
            raise ValueError(f"set: {name} is given as {short(found[name])} and {short(value)}; write it once")
    return found


def _fixed(
    form: Format, documents: list[Document], launch: Launch, answer: CheckAnswer, place: FixedPlace
) -> FileChange | None:
    """The improved files; None where nothing is better."""
    policy = None
    if answer.legal:
        better = [answer.best] if place.whole_plan else answer.improvements[:1]
        policy = next((each.policy for each in better if each is not None and each.changes), None)
    elif answer.nearest is not None:
        policy = settled(answer.nearest, launch.case)
    if policy is None:
        return None
    known = Known(launch.case.cluster.gpus, launch.case.model.layers)
    return place.written(fixed(form, documents, launch, policy, known), policy)
