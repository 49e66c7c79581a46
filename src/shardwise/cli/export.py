"""`shardwise export`: a policy as what other programs are launched with."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.cli._files import Overwrite
from shardwise.cli._flags import DOES_NOT_FIT
from shardwise.cli._folder import check_folder, write_into
from shardwise.cli._html import draw
from shardwise.cli._options import ACTS, Json, PlanName
from shardwise.cli._output import print_facts, print_json, print_notes
from shardwise.cli._plan_of import NO_PLAN_FLAGS, PlanFlags, called, cannot_run, question_of_words
from shardwise.cli._tuning import refuse_tuning
from shardwise.formats import (
    Format,
    HostCards,
    Lack,
    Launch,
    Written,
    expressed,
    format_of,
    settled,
    version_of,
    word_of,
)
from shardwise.formats._hints import kubernetes, ray, segment_lines
from shardwise.formats._improve import step_change
from shardwise.formats._ranks import group_file, rank_table
from shardwise.formats._scripts import sbatch
from shardwise.formats._unmodelled import not_stated
from shardwise.question.files import document_of
from shardwise.report import Report
from shardwise.report.terminal import policy_code
from shardwise.studies.build import report_of

DEVICE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,30}")


def export(
    plan: PlanName,
    /,
    flags: PlanFlags = NO_PLAN_FLAGS,
    *,
    to: Annotated[str, Parameter(help="megatron, torchtitan, deepspeed, accelerate, nanotron, bridge, ...")],
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
    target = format_of(to)
    document = document_of(plan)
    refuse_tuning("export", "writes no adapters", flags.tune, flags.freeze, document and document.get("tuning"))
    usual = flags.stack or (target.stack if document is None else None)
    ask, split = question_of_words(plan, replace(flags, stack=usual))
    chunks, cards = _layers(layers) or split, _cards(interface, hca)
    model = called(plan, flags, ask)
    if cannot_run(plan, flags, ask, json, "estimate"):
        return DOES_NOT_FIT
    asked_for = Launch(
        ask.case, settled(ask.policy, ask.case), chunks, version_of(target, version), Path(model).stem or model,
        cards=cards,
    )  # fmt: skip
    launch, gaps = expressed(target, asked_for)
    without = [Without(gap, step_change(asked_for, gap)) for gap in gaps]
    report = report_of(launch.case, launch.policy)
    comments = [f"predicted: {report.step_s:.4g} s a step, {report.verdict}", *[each.text for each in without]]
    launch = replace(launch, comments=tuple(comments))
    written, notes = target.write(launch), [*not_stated(target, launch), *ask.notes]
    files = {**written.files, "job.sbatch": sbatch(launch, target.name, "train.sh", segment_lines(launch))}
    files |= {"kubernetes.yaml": kubernetes(launch, target.name), "ray.json": ray(launch)}
    files |= {"ranks.csv": rank_table(launch), "groups.json": group_file(launch)}
    if out is not None:
        check_folder(out, files, "out", overwrite)
        write_into(out, ((name, text.encode()) for name, text in files.items()), "out", overwrite)
    if json:
        print_json(
            _data(target, launch, written, without, report.step_s, report.fits, files, out, notes)
            | {"policy_origin": ask.origin}
        )
    else:
        _show(target, launch, written, without, files, out, [*notes, f"predicted: {report.verdict}"], report)
    return 0 if report.fits else DOES_NOT_FIT


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


@dataclass(frozen=True)
class Without:
    """What a target does without, and what that costs."""

    gap: Lack
    step_change: float

    @property
    def text(self) -> str:
        instead = ", ".join(f"{name} {word_of(value)}" for name, value in (self.gap.instead or {}).items())
        return f"{instead} instead of {word_of(self.gap.value)}: step {self.step_change:+.1%} ({self.gap.why})"


def _data(
    target: Format, launch: Launch, written: Written, without: list[Without], step_s: float, fits: bool,
    files: dict[str, str], out: Path | None, notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    return {
        "target": target.name, "version": launch.version or None, "policy": launch.policy, "step_s": step_s,
        "fits": fits, "environment": written.environment,
        "without": [
            {"field": each.gap.field, "value": each.gap.value, "instead": each.gap.instead, "why": each.gap.why,
             "step_change": each.step_change}
            for each in without
        ],
        "files": {name: str(out / name) if out else text for name, text in files.items()},
        "notes": [*written.notes, *notes],
    }  # fmt: skip


def _show(
    target: Format, launch: Launch, written: Written, without: list[Without], files: dict[str, str],
    out: Path | None, notes: list[str], report: Report,
) -> None:  # fmt: skip
    if out is None:
        for name, text in written.files.items():
            print(f"==> {name} <==\n{text}")
    else:
        facts = [("policy", policy_code(launch.policy)), *[(name, _what(name)) for name in files]]
        print_facts(f"{target.title}, in {out}", facts)
    print_notes([each.text for each in without], title=f"{target.title} does without")
    draw(report._repr_html_)
    print_notes([*written.notes, *notes])


def _what(name: str) -> str:
    return {
        "train.sh": "starts the ranks of one node (torchrun)", "job.sbatch": "starts all nodes (sbatch, srun)",
        "kubernetes.yaml": "a job with a pod on every host, and what Kueue is to keep together",
        "ray.json": "a placement group: a bundle for every host",
        "ranks.csv": "every rank's node, GPU, NIC and groups", "groups.json": "the groups of each axis, as ranks",
    }.get(name, "the configuration")  # fmt: skip
