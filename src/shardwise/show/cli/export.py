"""`shardwise export`: a policy as what other programs are launched with."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers.export import PosttrainExportAnswer, export_answer, for_target, posttrain_export
from shardwise.programs.formats import HostCards, Launch, format_of, settled, version_of
from shardwise.question import STATED
from shardwise.question.command import target_of
from shardwise.question.files import document_of
from shardwise.question.job import CUTS, DEFAULT_STACK
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._flags import DOES_NOT_FIT
from shardwise.show.cli._folder import check_folder, write_into
from shardwise.show.cli._options import ACTS, Json, PlanName
from shardwise.show.cli._output import answered
from shardwise.show.cli._plan_of import NO_PLAN_FLAGS, PlanFlags, called, cannot_run, question_of_words
from shardwise.spec.parameters import flag_of

DEVICE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,30}")


def export(
    plan: PlanName,
    /,
    flags: PlanFlags = NO_PLAN_FLAGS,
    *,
    to: Annotated[str, Parameter(help="megatron, torchtitan, trl, axolotl, ...; not given: the one of --stack.")] = "",
    version: Annotated[
        str, Parameter(help="Version of a target that has several: torchtitan 0.2.2, 0.3.0, main.")
    ] = "",
    layers: Annotated[str, Parameter(help="Layers of each chunk of the pipeline, in order: 19,21,21,19.")] = "",
    interface: Annotated[str, Parameter(help="Of a host, for the first contact between ranks: eth0.")] = "",
    hca: Annotated[str, Parameter(help="NICs of a host, in the order of its GPUs: mlx5_0,mlx5_3,mlx5_4.")] = "",
    out: Annotated[Path | None, ACTS, Parameter(help="Folder to write into; not given: the files are printed.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """Arguments or configuration, launch scripts, environment and rank map of a policy for another program."""
    document = document_of(plan)
    stated = (document or {}).get("stack")
    to = to or target_of(flags.stack or (stated if isinstance(stated, str) else DEFAULT_STACK))
    if document is not None and "algorithm" in document and "job" in document:
        return _of_posttrain(posttrain_export(to, document, plan, flags.model or ""), out, overwrite, json)
    target = format_of(to)
    for name in CUTS:
        if getattr(flags, name) is not None:
            raise ValueError(f"{flag_of(name)}: no program that is exported to has it; leave --{flag_of(name)} out")
    usual = flags.stack or (target.stack if document is None else None)
    ask, split = question_of_words(plan, replace(flags, stack=usual))
    chunks, cards = _layers(layers) or split, _cards(interface, hca)
    model = called(plan, flags, ask)
    if cannot_run(plan, flags, ask, json, "estimate"):
        return DOES_NOT_FIT
    launch = Launch(
        ask.case, settled(ask.policy, ask.case), chunks, version_of(target, version),
        Path(model).stem if model.endswith(".json") else model,
        cards=cards,
    )  # fmt: skip
    if ask.origin != STATED and not chunks:
        ask, launch = for_target(target, launch, ask)
    answer = export_answer(target, launch, ask)
    if out is not None:
        check_folder(out, answer.files, "out", overwrite)
        write_into(out, ((name, text.encode()) for name, text in answer.files.items()), "out", overwrite)
        paths = {name: str(out / name) for name in answer.files}
        answer = with_fields(answer, files=paths, folder=str(out))
    return answered(answer, json)


def _of_posttrain(answer: PosttrainExportAnswer, out: Path | None, overwrite: bool, json: bool) -> int:
    if out is not None:
        check_folder(out, answer.files, "out", overwrite)
        write_into(out, ((name, text.encode()) for name, text in answer.files.items()), "out", overwrite)
        paths = {name: str(out / name) for name in answer.files}
        answer = with_fields(answer, files=paths, folder=str(out))
    return answered(answer, json)


def _layers(text: str) -> tuple[int, ...]:
    words = text.split(",") if text else []
    if not all(word.strip().isdigit() for word in words):
        raise ValueError(f"layers: {text!r}; write whole numbers joined by commas, such as 19,21,21,19")
    return tuple(map(int, words))


def _cards(interface: str, hca: str) -> HostCards:
    names = tuple(word.strip() for word in hca.split(",")) if hca else ()
    for field, word in (("interface", interface), *(("hca", name) for name in names)):
        if (word or field == "hca") and not DEVICE.fullmatch(word):
            wanted = "eth0 or bond0" if field == "interface" else "mlx5_0,mlx5_1, as `ibv_devices` lists them"
            raise ValueError(f"{field}: {word[:40]!r} is not a device name; write {wanted}")
    return HostCards(interface, names)
