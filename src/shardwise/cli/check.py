"""`shardwise check`: what a launch script or configuration says, whether it can run and fits, and what is faster."""

from dataclasses import dataclass
from dataclasses import replace as with_
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.arch import model_of
from shardwise.cli._files import Overwrite
from shardwise.cli._fixed import Changed, FixedPlace
from shardwise.cli._flags import on_of
from shardwise.cli._html import draw
from shardwise.cli._options import ACTS, Json, PrecisionName, flags
from shardwise.cli._output import Cell, print_facts, print_json, print_notes, print_table
from shardwise.formats import Format, Found, Known, Launch, question_of_launch, read_documents, settled, word_of
from shardwise.formats._fix import fixed
from shardwise.formats._improve import Improvement, best_stated, improvements
from shardwise.formats._source import STDIN, Document, open_document
from shardwise.question import PolicyQuestion
from shardwise.question.command import command_of
from shardwise.report.report import Report
from shardwise.report.terminal import policy_code
from shardwise.screen import on_screen
from shardwise.spec.load import cluster_of
from shardwise.spec.parameters import CaseOptions
from shardwise.spec.rules import Verdict, verdict_of
from shardwise.studies.build import report_of

FAILED = 1


@flags
class CaseFlags(CaseOptions):
    """The policy is in the file."""

    precision: PrecisionName = None


NO_FLAGS = CaseFlags()
SHOWN = 12
"""settings listed on the screen; JSON has all"""


@dataclass(frozen=True)
class Judgement:
    launch: Launch
    verdict: Verdict
    report: Report | None
    """of a policy that can run"""
    changes: list[Improvement]
    best: Improvement | None


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
    documents = [open_document(path) for path in files]
    form, found = read_documents(documents, known, target)
    shape = shape or found.model
    notes, judged = list(found.notes), None
    if shape is None or cluster is None:
        missing = " and ".join(flag for flag, value in (("--model", shape), ("--on", cluster)) if value is None)
        if fix:
            raise ValueError(f"fix: whether a change is better is not known; write {missing}")
        notes.append(f"not judged: write {missing} to learn whether it is legal, fits and could be faster")
    else:
        ask = question_of_launch(form, found, shape, cluster, given)
        notes = list(ask.notes)
        if found.layers:
            notes.append("layers that differ from stage to stage are read, not priced: an even split is judged")
        judged = _judged(form, found, ask, model or shape.name)
    done = None if judged is None or not fix else _fixed(form, documents, judged, place)
    if done is not None:
        notes += done.notes
    elif fix:
        notes.append("fix: nothing that this program can state is better; no file is changed")
    if json:
        print_json(_data(form, found, judged) | ({"fix": done} if fix else {}) | {"notes": notes})
    else:
        _show(form, found, judged, notes, model or "MODEL", on or "")
        if done is not None:
            print(f"\n{on_screen(done.diff)}", end="")
    return 0 if judged is None or (judged.report is not None and judged.report.fits) else FAILED


def _judged(form: Format, found: Found, ask: PolicyQuestion, called: str) -> Judgement:
    case = ask.case
    launch = Launch(case, ask.policy, found.layers, found.version, called)
    verdict = verdict_of(case.model, case.cluster, case.job, launch.policy)
    if not verdict.legal:
        return Judgement(launch, verdict, None, [], None)
    report = report_of(case, launch.policy)
    best = best_stated(form, with_(launch, layers=()))
    return Judgement(launch, verdict, report, improvements(form, launch), best)


def _fixed(form: Format, documents: list[Document], judged: Judgement, place: FixedPlace) -> Changed | None:
    """The improved files; None where nothing is better."""
    case, policy = judged.launch.case, None
    if judged.report is not None:
        better = [judged.best] if place.whole_plan else judged.changes[:1]
        policy = next((each.policy for each in better if each is not None and each.fields), None)
    elif judged.verdict.cure is not None:
        policy = settled(judged.verdict.cure, case)
    if policy is None:
        return None
    known = Known(case.cluster.gpus, case.model.layers)
    return place.written(fixed(form, documents, judged.launch, policy, known), policy)


def _changes(change: Improvement) -> str:
    pairs = [f"{name} {word_of(old)} -> {word_of(new)}" for name, (old, new) in change.fields.items()]
    return ", ".join(pairs)


def _show(form: Format, found: Found, judged: Judgement | None, notes: list[str], model: str, on: str) -> None:
    facts: list[tuple[str, Cell]] = [("policy", policy_code(judged.launch.policy if judged else found.policy))]
    facts.append(("GPUs", found.gpus))
    facts += [
        ("sequence", found.seq),
        ("batch", found.global_batch),
        ("passes", found.pipeline_passes if found.pipeline_passes > 1 else None),
        ("precision", found.precision or None),
    ]
    facts.append(("optimizer", found.optimizer or None))
    facts += [(name.replace("_", " "), value) for name, value in found.software.items()]
    if found.layers:
        facts.append(("layers", " ".join(map(str, found.layers))))
    if judged is not None and judged.report is None:
        facts += [("verdict", f"cannot run: {judged.verdict.rule}"), ("because", judged.verdict.why)]
        cure = judged.verdict.cure
        case = judged.launch.case
        command = command_of(model, on, case.job, cure, case.stack.name) if cure else "none is near"
        facts.append(("nearest", command))
    elif judged is not None and judged.report is not None:
        report = judged.report
        facts += [("verdict", report.verdict), ("step", f"{report.step_s:.4g} s, MFU {report.mfu_causal_half:.1%}")]
    print_facts(f"{form.title}: contents of the file", facts)
    if judged is not None and judged.report is not None:
        draw(judged.report._repr_html_)
    if judged is not None and judged.report is not None:
        rows = [(_changes(c), f"{c.step_s:.4g}", f"{c.gain:+.1%}") for c in judged.changes]
        if rows:
            print()
            print_table(
                f"one setting changed, as {form.title} can state it",
                ["change", "step s", "gain"],
                rows,
                breaks=0,
                bars=("step s",),
            )
        best = judged.best
        if best is not None and best.fields and best.gain > 0:
            print_notes([f"{policy_code(best.policy)}: {best.step_s:.4g} s, {best.gain:+.1%}"],
                        title=f"the best of a whole plan that {form.title} can state")  # fmt: skip
    left = [*found.unmodelled[:SHOWN]]
    if len(found.unmodelled) > SHOWN:
        left.append(f"and {len(found.unmodelled) - SHOWN} more (--json lists all)")
    print_notes(list(found.not_modelled), title="read, changes the step and is not modelled")
    print_notes(left, title="read, but nothing here depends on it")
    print_notes(notes)


def _data(form: Format, found: Found, judged: Judgement | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "target": form.name, "policy": found.policy, "gpus": found.gpus, "seq_tokens": found.seq,
        "global_sequences": found.global_batch, "pipeline_passes": found.pipeline_passes,
        "precision": found.precision or None,
        "optimizer": found.optimizer or None, "layers": found.layers or None, "software": found.software,
        "not_modelled": found.not_modelled, "unmodelled": found.unmodelled,
        "judged": judged is not None, "legal": None, "fits": None, "rule": None, "why": None, "nearest": None,
        "step_s": None, "peak_bytes": None, "improvements": [], "best": None,
    }  # fmt: skip
    if judged is None:
        return data
    report = judged.report
    data |= {"legal": judged.verdict.legal, "fits": report is not None and report.fits}
    if report is None:
        return data | {"rule": judged.verdict.rule, "why": judged.verdict.why, "nearest": judged.verdict.cure}
    return data | {
        "why": report.verdict, "step_s": report.step_s, "peak_bytes": report.peak_bytes,
        "improvements": [_told(change) for change in judged.changes],
        "best": None if judged.best is None else _told(judged.best),
    }  # fmt: skip


def _told(change: Improvement) -> dict[str, Any]:
    return {
        "changes": {name: {"from": old, "to": new} for name, (old, new) in change.fields.items()},
        "policy": change.policy, "step_s": change.step_s, "gain": change.gain,
    }  # fmt: skip
