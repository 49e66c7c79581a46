"""The question of a run that a launch file describes: its policy and job, with what options state in place of it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as with_fields

from shardwise.programs.formats._contract import Format, Found, set_up, settled
from shardwise.question import STATED, PolicyQuestion, open_question_of, with_policy
from shardwise.spec.arch import catalog_name, model_names, model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import precision_of
from shardwise.spec.model import Model
from shardwise.spec.parameters import CaseOptions


def question_of_launch(
    form: Format, found: Found, model: Model, cluster: Cluster, options: CaseOptions, logged_batch: int | None = None
) -> PolicyQuestion:
    """`cluster`: with the cards stated for it. `logged_batch`: sequences of a step, as a log of the run has them."""
    notes, batch = list(found.notes), options.global_batch or found.global_batch or logged_batch
    if batch is None:
        batch = found.policy.dp * found.policy.micro_batch * found.policy.pp * found.policy.vpp
        notes.append(f"global batch not stated: {batch} sequences assumed")
    passes = found.pipeline_passes if str(batch) == str(found.global_batch) else 1
    stated: Mapping[str, Any] = {
        "nic": None, "seq": options.seq or (str(found.seq) if found.seq else None), "global_batch": str(batch),
        "stack": options.stack or found.stack or form.stack, "optimizer": options.optimizer or found.optimizer or None,
        "pipeline_passes": options.pipeline_passes or passes, "tune": options.tune or found.tune or None,
        "freeze": options.freeze or _freezes(found, model, notes),
    }  # fmt: skip
    question = open_question_of(model, cluster, replace(options, **stated))
    if found.precision and getattr(options, "precision", None) is None:
        question = replace(question, job=with_fields(question.job, precision=precision_of(found.precision)))
    if options.stack is None:
        question = replace(question, stack=set_up(question.stack, found))
    question = replace(question, notes=(*notes, *question.notes))
    return with_policy(question, settled(found.policy, question.case), STATED)


def _freezes(found: Found, model: Model, notes: list[str]) -> str | None:
    """Frozen parts that the model has: a tower that sees is not part of one that reads."""
    if found.freeze == "vision" and not any(model.kinds[kind].tokens for kind in model.pattern):
        notes.append(f"the vision tower is frozen, and {model.name} has none")
        return None
    return found.freeze or None


def model_called(name: str) -> Model | None:
    """The catalog's model of a name in a file: a hub id, the last part of a path, or a program's spelling of either;
    None where it is not exactly one of them."""
    wanted = {_plain(part) for part in (name, name.rpartition("/")[2])}
    known = {_plain(each): each for each in model_names()}
    hub = catalog_name(name)
    match = hub or next((known[each] for each in wanted if each in known), "")
    return model_of(match) if match else None


_USUAL = re.compile(r"[-_.](?:instruct|chat|it|base|hf|v0\.1|2507)$|^meta[-_]|-chat-hf$", re.I)


def _plain(name: str) -> str:
    before = ""
    while before != name:
        before, name = name, _USUAL.sub("", name)
    return re.sub(r"[^a-z0-9]", "", name.lower())
