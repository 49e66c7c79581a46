"""`shardwise size --max`: the largest sequence, micro-batch or model that fits, and what is full beyond it."""

import builtins
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.question import Question
from shardwise.question.studies.why import out_of_memory
from shardwise.registry import closest
from shardwise.report import Report
from shardwise.report.terminal import legend_of, policy_code, policy_text
from shardwise.show.cli._flags import DOES_NOT_FIT, Flags, asked_openly, leave_out
from shardwise.show.cli._growth import Growth, GrowthAxis, batch_axis, grow, model_axis, sequence_axis
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import Cell, print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._that_fit import print_that_fit, that_fit_data
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.cluster import Cluster
from shardwise.units import SizeUnit, gib, memory_text, share_text, size_unit, time_text

WHAT = ("sequence", "batch", "model")
KINDS_NAMED = 3


def max(  # the verb's own name
    what: Annotated[str, Parameter(help="sequence, batch (micro-batch) or model (layers).")],
    model: ModelName,
    /,
    flags: Flags,
    *,
    json: Json = False,
) -> int:
    """The largest sequence, micro-batch or number of layers that fits under the best policy."""
    if what not in WHAT:
        raise ValueError(
            f"max: {what!r} is unknown; {closest(what, list(WHAT))}; write for example: max sequence MODEL"
        )
    leave_out("max", "searches under the mean gradient and full sequences", flags, "sync", "lengths", "packing")
    case = asked_openly(model, flags.on, flags)
    cluster, notes = case.cluster, list(case.notes)
    axis = _axis(what, case, flags, cluster)
    found = grow(axis, cluster)
    notes = _notes(what, notes, case, axis, found)
    nearest = _nearest(cluster, found)
    if json:
        print_json(_data(what, case, cluster, axis, found, nearest) | {"notes": notes})
    else:
        _show(what, cluster, axis, found)
        _show_that_fit(cluster, found, nearest)
        shown = [ranked.recommended.policy for ranked in found.tried.values() if ranked.recommended is not None]
        print_notes([*([legend_of(shown)] if shown else []), *notes])
    return 0 if found.largest is not None else DOES_NOT_FIT


def _axis(what: str, case: Question, flags: Flags, cluster: Cluster) -> GrowthAxis:
    if case.model.inputs == "features" and what != "batch":
        raise ValueError(f"max: {what!r} of {case.model.name}, which reads single examples; write max batch")
    if what == "sequence":
        if case.model.sample_tokens:
            raise ValueError(
                f"max: every sample of {case.model.name} is {case.model.sample_tokens:,} tokens; write max batch or "
                "max model, or change image_size in its file"
            )
        if flags.seq is not None:
            raise ValueError(f"seq: {flags.seq!r} is the value searched for; leave --seq out")
        return sequence_axis(case, flags, cluster)
    return batch_axis(case, cluster) if what == "batch" else model_axis(case)


def _notes(what: str, notes: list[str], case: Question, axis: GrowthAxis, found: Growth) -> list[str]:
    if what == "sequence":
        notes = [n for n in notes if not n.startswith(("--seq", "--global-batch"))]
        notes.append("the tokens of a step stay about the same unless --global-batch says otherwise")
        if case.model.positions and (found.largest or 0) > case.model.positions:
            notes.append(f"{case.model.name} has {case.model.positions:,} learned positions: it needs a longer table")
    if what == "batch":
        notes.append("powers of two; the global batch is rounded up so that every data-parallel degree divides it")
    if what == "model":
        notes.append("layers are repeated or left out in the model's own order; widths stay")
    if not found.finished:
        notes.append("interrupted: larger ones were not all tried")
    if found.largest == axis.most:
        notes.append(f"{axis.most:,} {axis.unit} is the largest size tried")
    return notes


def _reports(cluster: Cluster, found: Growth) -> tuple[Report | None, Report | None]:
    """Of the largest that fits, and of the smallest policy at the next size."""
    inside, beyond = found.largest, found.next
    winner = None
    if inside is not None:
        chosen = found.tried[inside].recommended
        winner = None if chosen is None else found.cases[inside].report(cluster, chosen.policy)
    small = None if beyond is None else found.tried[beyond].smallest
    return winner, None if small is None or beyond is None else found.cases[beyond].report(cluster, small.policy)


def _nearest(cluster: Cluster, found: Growth) -> list[PolicyThatFits]:
    """To the smallest policy at the next size: those that fit after all, outside --fix or by offload."""
    small = None if found.next is None else found.tried[found.next].smallest
    if small is None or found.next is None:
        return []
    return policies_that_fit(found.cases[found.next].on(cluster), small.policy)


def _show_that_fit(cluster: Cluster, found: Growth, nearest: list[PolicyThatFits]) -> None:
    small = None if found.next is None else found.tried[found.next].smallest
    if small is not None and found.next is not None:
        near = f"at {found.next:,}: nearest"
        print_that_fit(found.cases[found.next].on(cluster), small.policy, nearest, small.step_s, near=near)


def _show(what: str, cluster: Cluster, axis: GrowthAxis, found: Growth) -> None:
    winner, over = _reports(cluster, found)
    facts: list[tuple[str, Cell]] = []
    if winner is None or found.largest is None:
        facts.append(("largest", f"nothing fits, not even {min(found.tried):,} {axis.unit}"))
    else:
        model = found.cases[found.largest].model
        also = f", {parameters(model) / 1e9:,.4g}B parameters" if what == "model" else ""
        facts += [
            ("largest", f"{found.largest:,} {axis.unit}{also}"),
            ("policy", policy_text(winner.policy)),
            ("step", f"{time_text(winner.step_s)} of {winner.global_sequences:,} x {winner.seq_tokens:,} tokens, "
                     f"MFU {share_text(winner.mfu_causal_half)}"),
            ("memory", f"{memory_text(winner.peak_bytes)} of {gib(found.tried[found.largest].limit_bytes)} GiB that "
                       f"may be filled, stage {winner.fullest_stage}: {_filled(winner)}"),
        ]  # fmt: skip
    if found.next is not None:
        limit = found.tried[found.next].limit_bytes
        why = "no legal policy" if over is None else f"{out_of_memory(over, limit)} ({_filled(over)})"
        smallest = "" if over is None else f"; the smallest policy is {policy_code(over.policy)}"
        facts.append((f"at {found.next:,}", why + smallest))
    print_facts(f"largest {what} on {cluster.name}", facts)
    print_gap()
    peaks = [ranked.recommended.peak_bytes for ranked in found.tried.values() if ranked.recommended is not None]
    unit = size_unit(builtins.max(peaks, default=2.0**30))
    print_table("tried", [axis.unit, "policy", "step s", unit.name, "over by GiB"],
                _rows(found, unit), words=2, breaks=1, bars=(unit.name,))  # fmt: skip


def _rows(found: Growth, unit: SizeUnit) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for size, ranked in sorted(found.tried.items()):
        best = ranked.recommended
        if best is not None:
            rows.append([f"{size:,}", policy_code(best.policy), f"{best.step_s:.4g}", unit.text(best.peak_bytes), None])
        else:
            over = None if ranked.smallest is None else gib(ranked.smallest.peak_bytes - ranked.limit_bytes)
            rows.append([f"{size:,}", "nothing fits" if over else "nothing legal", None, None, over])
    return rows


def _filled(report: Report) -> str:
    kinds = sorted(report.stages[report.fullest_stage].kinds_bytes.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {memory_text(size)}" for kind, size in kinds[:KINDS_NAMED])


def _data(
    what: str, case: Question, cluster: Cluster, axis: GrowthAxis, found: Growth, nearest: list[PolicyThatFits]
) -> dict[str, Any]:
    winner, over = _reports(cluster, found)
    grown = None if found.largest is None else found.cases[found.largest]
    return {
        "what": what, "model": case.model.name, "cluster": cluster.name, "stack": case.stack.name, "unit": axis.unit,
        "largest": found.largest, "parameters": None if grown is None else parameters(grown.model),
        "global_sequences": None if grown is None else grown.job.global_batch,
        "seq_tokens": None if grown is None else grown.job.seq,
        **_memory(winner), "step_s": None if winner is None else winner.step_s,
        "mfu_causal_half": None if winner is None else winner.mfu_causal_half,
        "mfu_full_square": None if winner is None else winner.mfu_full_square,
        "next": None if found.next is None else {
            "size": found.next, **_memory(over),
            "over_bytes": None if over is None else over.peak_bytes - found.tried[found.next].limit_bytes,
            "why": None if over is None else out_of_memory(over, found.tried[found.next].limit_bytes),
            "that_fit": [] if over is None else that_fit_data(nearest, over.step_s),
        },
        "finished": found.finished,
        "tried": [{"size": size, "fits": bool(r.best), "legal": r.points} for size, r in sorted(found.tried.items())],
    }  # fmt: skip


def _memory(report: Report | None) -> dict[str, Any]:
    return {
        "policy": None if report is None else msgspec.to_builtins(report.policy),
        "peak_bytes": None if report is None else report.peak_bytes,
        "fullest_stage": None if report is None else report.fullest_stage,
        "kinds_bytes": None if report is None else report.stages[report.fullest_stage].kinds_bytes,
    }
