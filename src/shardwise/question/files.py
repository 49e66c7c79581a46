"""A question from a plan file: what `plan --json`, `estimate --json` or `stages --json` wrote."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as with_fields

from shardwise.bounded import json_of
from shardwise.fields import Fields, converted, read_file
from shardwise.question.build import open_question_of, with_policy
from shardwise.question.question import STATED, PolicyQuestion
from shardwise.spec.arch import model_of
from shardwise.spec.job import precision_of
from shardwise.spec.model import Model
from shardwise.spec.parameter import OVERLAP, POLICY, SPACE
from shardwise.spec.parameters import Options, flag_of, stated
from shardwise.spec.policy import Policy

MOST_BYTES = 64 * 2**20
"""largest plan file that is read; one of a thousand policies has 4 MiB"""
WANTED = "what `estimate --json` prints"


def document_of(name: str) -> dict[str, Any] | None:
    """The file's content when it is a plan; None for a model."""
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        return None
    raw = read_file(path, "plan", MOST_BYTES, "what `shardwise estimate --json` prints")
    try:
        found = json_of(raw)
    except ValueError as error:
        raise ValueError(
            f"plan: {name!r} is not JSON ({error}); write what `shardwise estimate --json` prints"
        ) from None
    return found if isinstance(found, dict) and ("policy" in found or "best" in found) else None


def question_of_plan(
    name: str, document: dict[str, Any], options: Options, *, model: str | None = None, on: str = "",
    choice: int | None = None,
) -> tuple[PolicyQuestion, tuple[int, ...]]:  # fmt: skip
    """The question, and the layers of each stage where the file has them. What options state of the job and program is
    taken instead of the file's; the policy is the file's. `model`, `on`: instead of those that the file names."""
    _check_policy_is_open(name, options)
    split: tuple[int, ...] = ()
    if isinstance(document.get("best"), dict):  # of `stages`
        split = tuple(Fields(document["best"], f"plan {name!r}: best").wholes("layers", least=0))
    elif "best" in document:
        document = {**document, **_chosen(name, document, choice)}
    fields = Fields(document, f"plan {name!r}")
    policy = converted(fields.value("policy", WANTED), Policy, fields.at("policy"), WANTED)
    planned = fields.text("precision", default="")
    question = open_question_of(
        _planned_model(model or fields.text("model")), on or fields.text("cluster"), _filled(options, fields, document)
    )
    if planned and options.precision is None:
        question = replace(question, job=with_fields(question.job, precision=precision_of(planned)))
    used = question.job.precision.name
    notes = [f"planned for {planned}, run in {used}"] if planned not in ("", used) else []
    return with_policy(question, policy, STATED, *notes), split


def ranks_of_plan(name: str, document: dict[str, Any]) -> int:
    """GPUs of the policy that a plan file recommends."""
    if "best" in document and not isinstance(document["best"], dict):
        document = {**document, **_chosen(name, document, None)}
    fields = Fields(document, f"plan {name!r}")
    return converted(fields.value("policy", WANTED), Policy, fields.at("policy"), WANTED).gpus


def _filled(options: Options, fields: Fields, document: dict[str, Any]) -> Options:
    """With the file's job and program where nothing else is stated."""
    tuning = document.get("tuning") if isinstance(document.get("tuning"), dict) else {}
    assert tuning is not None
    return replace(
        options,
        seq=options.seq or str(fields.whole("seq_tokens")),
        global_batch=options.global_batch or str(fields.whole("global_sequences")),
        pipeline_passes=options.pipeline_passes or fields.whole("pipeline_passes", default=1),
        uneven=options.uneven or document.get("uneven") is True,
        optimizer=options.optimizer or fields.text("optimizer", default="") or None,
        stack=options.stack or fields.text("stack", default="") or None,
        tune=options.tune or tuning.get("tune") or None, freeze=options.freeze or tuning.get("freeze") or None,
    )  # fmt: skip


def _check_policy_is_open(name: str, options: Options) -> None:
    for each in stated(options, POLICY, OVERLAP, SPACE):
        if each != "sync":
            raise ValueError(f"{flag_of(each)}: the plan {name!r} states the policy; leave --{flag_of(each)} out")


def _chosen(name: str, document: dict[str, Any], choice: int | None) -> dict[str, Any]:
    recommended, choices = document.get("recommended"), document["best"]
    if choice is None and isinstance(recommended, dict):
        return recommended
    number, count = choice or 1, len(choices) if isinstance(choices, list) else 0
    found = choices[number - 1] if 1 <= number <= count else None
    if not count:
        raise ValueError(f"plan: {name!r} lists no policy; write what `shardwise plan --json` prints where one fits")
    if not isinstance(found, dict):
        raise ValueError(f"choice: {number} of the plans in {name!r}; write 1 to {count}")
    return found


def _planned_model(name: str) -> Model:
    try:
        return model_of(name)
    except ValueError as error:
        raise ValueError(
            f"{error}; a plan names its model only: write --model with the path of its config.json"
        ) from None
