"""`catalog layouts`: published layouts, against what was reported and what could have run instead."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from shardwise.answers.answer import Answer, Cell, FactList, Notes, Part, Table
from shardwise.question.command import command_of
from shardwise.question.studies.published import TOP, LayoutStudy, MissingFeature, Place
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policy

SMALL = 5e-4
"""a part or a change below this share is not listed"""
NAMED = 3
"""missing features named in a line of the list"""
UNRANKED = 6
"""of these columns, those that need no search"""
WHAT = ["layout", "policy", "GPUs"]
HARDWARE = ["layout", "TFLOP/s per GPU", "said", "% of peak", "PFLOP/s in all"]
RANKS = ["layout", "step s", "said s", "err %", "MFU", "said", "own", "now", "deg."]


class RankedPlace(Place, frozen=True, kw_only=True):
    in_the_top: bool


class LayoutRow(Struct, frozen=True, kw_only=True):
    layout: str
    title: str
    source: str
    date: str
    note: str
    model: str
    cluster: str
    gpus: int
    stack: str
    stack_summary: str
    seq_tokens: int
    global_sequences: int
    policy: Policy
    policy_code: str
    not_published: Sequence[str]
    command: str
    legal: bool
    fits: bool
    had_room: bool
    verdict: str
    step_s: float | None
    error_range: tuple[float, float] | None
    error_basis: str | None
    mfu_causal_half: float | None
    mfu_full_square: float | None
    peak_bytes: float | None
    hfu: float | None
    hardware_flops_per_s_per_gpu: float | None
    """all that is executed, recompute too: as Megatron's table counts"""
    hardware_flops_per_s: float | None
    """of all GPUs"""
    reported_hardware_flops_per_s_per_gpu: float | None
    """the reported step, counted alike"""
    reported: str
    reported_step_s: float
    reported_mfu_causal_half: float
    error: float | None
    """predicted over reported step time, less 1"""
    inside_error_band: bool | None
    own: RankedPlace | None
    """among what the layout's own program could run"""
    own_same_recompute_share_faster: float | None
    today: RankedPlace | None
    """among what the modern stack runs; None where that is the same"""
    degrees_today_share_faster: float | None
    missing: Sequence[MissingFeature]
    in_the_top: bool
    why_not: Sequence[str]
    """a line for each space in which the layout is not among the best"""


class LayoutsAnswer(Answer, frozen=True, kw_only=True):
    top: float
    stack_today: str
    layouts: Sequence[LayoutRow]

    @property
    def exit_code(self) -> int:
        return 0 if self.layouts and all(row.had_room for row in self.layouts) else 1

    def parts(self) -> Iterator[Part]:
        if len(self.layouts) == 1:
            yield from _one(self.layouts[0], self.stack_today)
            return
        yield Table("published layouts", WHAT, [[row.layout, _verdict(row), row.gpus] for row in self.layouts], words=2)
        title = "predicted against reported" + ", and where they stand" * self.ranked
        heads = RANKS if self.ranked else RANKS[:UNRANKED]
        rows = [_ranks(row)[: len(heads)] for row in self.layouts]
        yield Table(title, heads, rows, bars=("step s", "said s"))
        counted = [_hardware(row) for row in self.layouts if row.hfu is not None]
        yield Table("counted with recompute and the whole square of attention", HARDWARE, counted)
        yield Notes([line for row in self.layouts for line in row.why_not], f"why not in the top {TOP:.0%}")

    @property
    def ranked(self) -> bool:
        return any(row.own is not None for row in self.layouts)

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return notes if len(self.layouts) == 1 else [*_legend(self.stack_today, self.ranked), *notes]


ANSWERS = (LayoutsAnswer,)


def layouts_answer(found: Sequence[LayoutStudy], today: str, notes: Sequence[str]) -> LayoutsAnswer:
    """`today`: the stack that stands for what can be run now."""
    return LayoutsAnswer(top=TOP, stack_today=today, layouts=list(map(_row, found)), notes=notes)


def _row(item: LayoutStudy) -> LayoutRow:
    layout, report = item.published, item.report
    own, today = (None if place is None else RankedPlace(**asdict(place), in_the_top=place.at_the_top)
                  for place in (item.own, item.today))  # fmt: skip
    return LayoutRow(
        layout=item.name, title=layout.title, source=layout.source, date=layout.date, note=layout.note,
        model=layout.model, cluster=layout.cluster.name, gpus=layout.cluster.gpus, stack=layout.stack.name,
        stack_summary=layout.stack.summary, seq_tokens=layout.job.seq, global_sequences=layout.job.global_batch,
        policy=item.policy, policy_code=policy_code(item.policy), not_published=layout.open_fields,
        command=command_of(layout.model, layout.cluster.name, layout.job, item.policy, layout.stack.name),
        legal=item.verdict.legal, fits=report is not None and report.fits,
        had_room=item.had_room,
        verdict=f"illegal, {item.verdict.rule}: {item.verdict.why}" if report is None else report.verdict,
        step_s=None if report is None else report.step_s,
        error_range=None if report is None else report.error_range,
        error_basis=None if report is None else report.error_basis,
        mfu_causal_half=None if report is None else report.mfu_causal_half,
        mfu_full_square=None if report is None else report.mfu_full_square,
        peak_bytes=None if report is None else report.peak_bytes, **_executed(item),
        reported=layout.reported.text(), reported_step_s=item.reported_step_s,
        reported_mfu_causal_half=item.reported_mfu, error=item.error, inside_error_band=item.inside_band,
        own=own, own_same_recompute_share_faster=item.own_same_recompute, today=today,
        degrees_today_share_faster=item.degrees_today, missing=item.missing,
        in_the_top=all(place.in_the_top for place in (own, today) if place is not None), why_not=_why_lines(item),
    )  # fmt: skip


def _executed(item: LayoutStudy) -> dict[str, float | None]:
    names = ("hfu", "hardware_flops_per_s_per_gpu", "hardware_flops_per_s", "reported_hardware_flops_per_s_per_gpu")
    report = item.report
    if report is None:
        return dict.fromkeys(names)
    rate = report.hfu * report.peak_flops_per_s
    said = rate * report.step_s / item.reported_step_s
    return dict(zip(names, (report.hfu, rate, rate * item.policy.gpus, said), strict=True))


def _hardware(row: LayoutRow) -> list[Cell]:
    each, said, whole = (rate or 0.0 for rate in (
        row.hardware_flops_per_s_per_gpu, row.reported_hardware_flops_per_s_per_gpu, row.hardware_flops_per_s
    ))  # fmt: skip
    return [row.layout, f"{each / 1e12:.0f}", f"{said / 1e12:.0f}", _percent(row.hfu), f"{whole / 1e15:,.3g}"]


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _legend(modern: str, ranked: bool) -> list[str]:
    lines = [
        "step s, MFU: predicted by the layout's own stack; said: the publication's figure, as seconds and as MFU "
        "that counts the causal half of attention",
        "err %: * the reported step lies outside the error band of that stack",
        "own: share of the fitting policies its own program could run that are faster; now: the same policy on stack "
        f"{modern} among all that runs there (- where that is the same); deg.: the best policy with its degrees (dp, "
        "tp, pp, cp, ep) on that stack",
        "settings left open are those of the fastest candidate that fits (`shardwise catalog layouts NAME`)",
    ]
    return lines if ranked else [*lines[:2], *lines[3:], "their rank among what could have run instead: --ranks"]


def _verdict(row: LayoutRow) -> str:
    if row.step_s is None:
        return row.verdict
    return row.policy_code + ("" if row.fits else f"; {row.verdict}")


def _ranks(row: LayoutRow) -> list[Cell]:
    if row.step_s is None or row.error is None:
        return [row.layout, None, f"{row.reported_step_s:.4g}", *[None] * 6]
    return [
        row.layout, f"{row.step_s:.4g}", f"{row.reported_step_s:.4g}",
        f"{100 * row.error:+.1f}{'' if row.inside_error_band else '*'}", _percent(row.mfu_causal_half),
        _percent(row.reported_mfu_causal_half), _percent(row.own.share_faster if row.own else None),
        None if row.today is None else _percent(row.today.share_faster), _percent(row.degrees_today_share_faster),
    ]  # fmt: skip


def _why_lines(item: LayoutStudy) -> list[str]:
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


def _one(row: LayoutRow, modern: str) -> Iterator[Part]:
    facts: list[tuple[str, Cell]] = [
        ("what", row.title), ("source", f"{row.source} ({row.date})"), ("policy", row.policy_code),
        ("command", row.command), ("stack", f"{row.stack}: {row.stack_summary}"),
    ]  # fmt: skip
    if row.step_s is None:
        facts.append(("illegal", row.verdict.removeprefix("illegal, ")))
    else:
        inside = "inside" if row.inside_error_band else "outside"
        facts += [
            ("memory", row.verdict),
            ("predicted", f"{row.step_s:.4g} s, MFU {_percent(row.mfu_causal_half)}"),
            ("band", f"{row.error_basis}; the report lies {inside}"),
            ("reported", f"{row.reported} = {row.reported_step_s:.4g} s, MFU {row.reported_mfu_causal_half:.1%}"),
            ("error", f"{row.error:+.1%}"),
            ("degrees", f"{_percent(row.degrees_today_share_faster)} of the policies of {modern} beat the best with "
                        "these degrees"),
        ]  # fmt: skip
    if row.not_published:
        facts.append(("assumed", f"{', '.join(row.not_published)} not published: the fastest candidate that fits"))
    if row.note:
        facts.append(("note", row.note))
    yield FactList(row.layout, facts)
    for title, place in (("its own program's space", row.own), (f"the space of stack {modern}", row.today)):
        if place is not None:
            yield from _place(title, place)
    yield Notes([_change(m) for m in row.missing], "features the program lacked, and the step change from each alone")


def _place(title: str, place: Place) -> Iterator[Part]:
    yield FactList(f"in {title}", [
        ("policies", f"{place.legal:,} legal, {place.fitting:,} fit"),
        ("faster", f"{place.faster:,} ({place.share_faster:.1%})"),
        ("best", "-" if place.best is None else f"{policy_code(place.best)}, {place.best_step_s:.4g} s"),
        ("layout", f"{place.step_s:.4g} s on {place.stack}; {place.why}"),
    ])  # fmt: skip
    rows = [[d.part, f"{d.seconds:+.4g}"] for d in place.waterfall if abs(d.seconds) > SMALL * place.step_s]
    if rows:
        yield Table("best to layout", ["part", "seconds"], rows, bars=("seconds",))
