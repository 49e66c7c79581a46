"""`shardwise catalog layouts`: published layouts, against what was reported and what could have run instead."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.measured.validate.layouts import published_runs
from shardwise.question.command import command_of
from shardwise.question.job import DEFAULT_STACK
from shardwise.question.studies.published import TOP, LayoutStudy, MissingFeature, Place, judge
from shardwise.report.terminal import policy_code
from shardwise.show.cli._options import Json, StackName
from shardwise.show.cli._output import Cell, print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._progress import answers, left_out
from shardwise.spec.software import known_stack

CHECK_FAILED = 1
SMALL = 5e-4
"""a part or a change below this share is not told"""
NAMED = 3
"""lacking things named in a line of the list"""
WHAT = ["layout", "policy", "GPUs"]
RANKS = ["layout", "step s", "said s", "err %", "MFU", "said", "own", "now", "deg."]


def layouts(
    name: Annotated[str | None, Parameter(help="A publication ('llama-3') or one run ('llama-3/16k-gpus').")] = None,
    /,
    *,
    stack: StackName = None,
    json: Json = False,
) -> int:
    """Published layouts: legal, fitting, predicted against reported, and their rank."""
    runs = published_runs(name)
    modern = known_stack(stack or DEFAULT_STACK)
    found = answers(runs, "layouts", lambda run: judge(run, modern))
    notes = left_out(found, runs, "layouts")
    if json:
        print_json({"top": TOP, "stack_today": modern.name, "layouts": [_data(item) for item in found], "notes": notes})
    elif len(runs) == 1 and found:
        _show_one(found[0], modern.name)
    else:
        _show(found, modern.name, notes)
    return 0 if found and all(item.had_room for item in found) else CHECK_FAILED


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _show(found: list[LayoutStudy], modern: str, notes: list[str]) -> None:
    what: list[list[Cell]] = [[item.name, _verdict(item), item.published.cluster.gpus] for item in found]
    print_table("published layouts", WHAT, what, words=2)
    print_gap()
    print_table("predicted against reported, and where they stand", RANKS, [_ranks(item) for item in found],
                bars=("step s", "said s"))  # fmt: skip
    outside = [item for item in found if not at_the_top(item)]
    print_notes([line for item in outside for line in why_lines(item)], title=f"why not in the top {TOP:.0%}")
    print_notes([*_legend(modern), *notes])


def _legend(modern: str) -> list[str]:
    return [
        "step s, MFU: predicted by the layout's own stack; said: the publication's figure, as seconds and as MFU "
        "that counts the causal half of attention",
        "err %: * the reported step lies outside the error band of that stack",
        "own: share of the fitting policies its own program could run that are faster; now: the same policy on stack "
        f"{modern} among all that runs there (- where that is the same); deg.: the best policy with its degrees (dp, "
        "tp, pp, cp, ep) on that stack",
        "settings left open are those of the fastest candidate that fits (`shardwise catalog layouts NAME`)",
    ]


def _verdict(item: LayoutStudy) -> str:
    if item.report is None:
        return f"illegal, {item.verdict.rule}: {item.verdict.why}"
    return policy_code(item.policy) + ("" if item.report.fits else f"; {item.report.verdict}")


def _ranks(item: LayoutStudy) -> list[Cell]:
    if item.report is None or item.own is None or item.error is None:
        return [item.name, None, f"{item.reported_step_s:.4g}", *[None] * 6]
    return [
        item.name, f"{item.report.step_s:.4g}", f"{item.reported_step_s:.4g}",
        f"{100 * item.error:+.1f}{'' if item.inside_band else '*'}", _percent(item.report.mfu_causal_half),
        _percent(item.reported_mfu), _percent(item.own.share_faster),
        None if item.today is None else _percent(item.today.share_faster), _percent(item.degrees_today),
    ]  # fmt: skip


def at_the_top(item: LayoutStudy) -> bool:
    return all(place.at_the_top for place in (item.own, item.today) if place is not None)


def why_lines(item: LayoutStudy) -> list[str]:
    """One line for each space in which the layout is not among the best."""
    lines = []
    if item.own is not None and not item.own.at_the_top:
        alike = f"; of those with recompute {item.policy.recompute} {_percent(item.own_same_recompute)} are faster"
        lines.append(f"{item.name}, own: {_why(item.own)}{alike}")
    if item.today is not None and not item.today.at_the_top:
        lines.append(f"{item.name}, now: {_why(item.today)}{_lacked(item.missing)}")
    return lines


def _why(place: Place) -> str:
    best = "nothing" if place.best is None else policy_code(place.best)
    return f"{place.faster:,} of {place.fitting:,} are faster, first {best}; {place.why}"


def _lacked(missing: Iterable[MissingFeature]) -> str:
    """What the program lacked, what matters most first."""
    ordered = sorted(missing, key=lambda m: m.change or 0.0)
    words = [_change(m) for m in ordered if m.change is None or m.change <= -SMALL]
    return f"; the program lacked {', '.join(words[:NAMED])}" if words else ""


def _change(missing: MissingFeature) -> str:
    return missing.what + (" (not alone)" if missing.change is None else f" {missing.change:+.1%}")


def _show_one(item: LayoutStudy, modern: str) -> None:
    layout, report = item.published, item.report
    facts: list[tuple[str, Cell]] = [
        ("what", layout.title), ("source", f"{layout.source} ({layout.date})"),
        ("policy", policy_code(item.policy)), ("command", _command(item)),
        ("stack", f"{layout.stack.name}: {layout.stack.summary}"),
    ]  # fmt: skip
    if report is None:
        facts.append(("illegal", f"{item.verdict.rule}: {item.verdict.why}"))
    else:
        inside = "inside" if item.inside_band else "outside"
        facts += [
            ("memory", report.verdict),
            ("predicted", f"{report.step_s:.4g} s, MFU {report.mfu_causal_half:.1%}"),
            ("band", f"{report.error_basis}; the report lies {inside}"),
            ("reported", f"{layout.reported.text()} = {item.reported_step_s:.4g} s, MFU {item.reported_mfu:.1%}"),
            ("error", f"{item.error:+.1%}"),
            ("degrees", f"{_percent(item.degrees_today)} of the policies of {modern} beat the best with these degrees"),
        ]
    if layout.open_fields:
        facts.append(("assumed", f"{', '.join(layout.open_fields)} not published: the fastest candidate that fits"))
    if layout.note:
        facts.append(("note", layout.note))
    print_facts(item.name, facts)
    for title, place in (("its own program's space", item.own), (f"the space of stack {modern}", item.today)):
        if place is not None:
            _show_place(title, place)
    if item.missing:
        title = "features the program lacked, and the step change from each alone"
        print_notes([_change(m) for m in item.missing], title=title)


def _show_place(title: str, place: Place) -> None:
    print_gap()
    print_facts(f"in {title}", [
        ("policies", f"{place.legal:,} legal, {place.fitting:,} fit"),
        ("faster", f"{place.faster:,} ({place.share_faster:.1%})"),
        ("best", None if place.best is None else f"{policy_code(place.best)}, {place.best_step_s:.4g} s"),
        ("layout", f"{place.step_s:.4g} s on {place.stack}; {place.why}"),
    ])  # fmt: skip
    rows = [[d.part, f"{d.seconds:+.4g}"] for d in place.waterfall if abs(d.seconds) > SMALL * place.step_s]
    if rows:
        print_gap()
        print_table("best to layout", ["part", "seconds"], rows, bars=("seconds",))


def _command(item: LayoutStudy) -> str:
    layout = item.published
    return command_of(layout.model, layout.cluster.name, layout.job, item.policy, layout.stack.name)


def _data(item: LayoutStudy) -> dict[str, Any]:
    layout, report = item.published, item.report
    return {
        "layout": item.name, "title": layout.title, "source": layout.source, "date": layout.date, "note": layout.note,
        "model": layout.model, "cluster": layout.cluster.name, "gpus": layout.cluster.gpus,
        "stack": layout.stack.name, "seq_tokens": layout.job.seq, "global_sequences": layout.job.global_batch,
        "policy": msgspec.to_builtins(item.policy), "policy_code": policy_code(item.policy),
        "not_published": list(layout.open_fields), "command": _command(item),
        "legal": item.verdict.legal, "fits": report is not None and report.fits, "had_room": item.had_room,
        "verdict": f"illegal, {item.verdict.rule}: {item.verdict.why}" if report is None else report.verdict,
        "step_s": None if report is None else report.step_s,
        "error_range": None if report is None else report.error_range,
        "error_basis": None if report is None else report.error_basis,
        "mfu_causal_half": None if report is None else report.mfu_causal_half,
        "mfu_full_square": None if report is None else report.mfu_full_square,
        "peak_bytes": None if report is None else report.peak_bytes,
        "reported": layout.reported.text(), "reported_step_s": item.reported_step_s,
        "reported_mfu_causal_half": item.reported_mfu, "error": item.error, "inside_error_band": item.inside_band,
        "own": _place_data(item.own), "own_same_recompute_share_faster": item.own_same_recompute,
        "today": _place_data(item.today), "degrees_today_share_faster": item.degrees_today,
        "missing": msgspec.to_builtins(item.missing), "in_the_top": at_the_top(item), "why_not": why_lines(item),
    }  # fmt: skip


def _place_data(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    found: dict[str, Any] = msgspec.to_builtins(place)
    return found | {"in_the_top": place.at_the_top}
