"""What `why` prints: the step beside its prediction, the causes with their cures, the fall, and what cannot be said."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardwise.cli._output import Cell, print_facts, print_gap, print_notes, print_table
from shardwise.cli._why_case import RunAsMeant
from shardwise.diagnose.causes import Cause
from shardwise.diagnose.clocks import ClockFinding
from shardwise.diagnose.logged import RunLog
from shardwise.diagnose.measured_step import MeasuredStep
from shardwise.diagnose.pace import Pace
from shardwise.diagnose.products import ProductBesideCurve
from shardwise.diagnose.recorder import Stuck
from shardwise.diagnose.why_slow import WhySlow
from shardwise.formats._cures import Cure, cure_of
from shardwise.report.terminal import policy_code
from shardwise.units import gib, time_text

SHOWN = 8
"""causes on the screen; JSON has all"""
CURED = 3
"""of them with their cure"""
LEAST = 5e-3
"""of a step: a smaller loss is not shown"""
BAR = 24


@dataclass(frozen=True)
class TraceAnswer:
    measured: MeasuredStep
    found: WhySlow
    products: tuple[ProductBesideCurve, ...] = ()
    """of one rank, where shapes were recorded and the GPU is known"""
    simulated: bool = False
    """a step of shardwise's own: its GPUs have no clocks to measure"""


@dataclass(frozen=True)
class LogAnswer:
    log: RunLog
    pace: Pace
    found: WhySlow

    @property
    def peak_bytes(self) -> float | None:
        return max((step.peak_bytes for step in self.log.steps if step.peak_bytes), default=None)


@dataclass(frozen=True)
class WhyAnswer:
    ran: RunAsMeant | None
    rent_usd: tuple[float, float] | None
    """of a day"""
    trace: TraceAnswer | None
    logs: tuple[LogAnswer, ...]
    stuck: tuple[Stuck, ...]
    dumps: int
    left_out: tuple[str, ...]
    clocks: ClockFinding | None = None

    @property
    def too_slow(self) -> bool:
        steps = [each.found for each in self.logs] + ([self.trace.found] if self.trace else [])
        return any(found.expected is not None and found.step_s > found.expected.high_s for found in steps)

    def cure(self, cause: Cause) -> Cure:
        ran = self.ran
        return cure_of(cause, ran.form if ran else None, ran.launch if ran and ran.form else None)

    def usd_a_day(self, share: float) -> tuple[float, float] | None:
        return None if self.rent_usd is None else (share * self.rent_usd[0], share * self.rent_usd[1])

    def cannot_say(self) -> list[str]:
        """Plainly, with what would tell."""
        found = [
            f"how good a step of {time_text(each.step_s)} is: the model's work alone takes "
            f"{time_text(each.expected.ideal_s)} at the GPUs' peak; check --model, --seq, --global-batch and --on"
            for each in [*([self.trace.found] if self.trace else []), *(log.found for log in self.logs)]
            if each.expected and each.in_seconds and each.step_s < each.expected.ideal_s
        ]
        if self.trace is None and self.logs:
            found.append(
                "which part of a step is slow: a log has whole steps only; give a trace of torch.profiler or nsys"
            )
            found.append("which rank or link is slow: give traces of several ranks")
        elif self.trace is not None and len(self.trace.measured.ranks) == 1:
            found.append("which rank is slow: give traces of several ranks")
        if self.trace is not None and not self.logs:
            found.append("stalls, drift and restarts: a trace is a few steps; give the log too")
        if self.ran is None and (self.trace or self.logs):
            found.append("the expected step: write --config FILE --on CLUSTER, or --model, --on and the policy's flags")
        if self.clocks is None and (self.trace or self.logs) and not (self.trace and self.trace.simulated):
            found.append("clocks: give a log of `nvidia-smi --query-gpu=...,clocks.sm --format=csv -l 1`, DCGM or W&B")
        if self.rent_usd is None and (self.trace or self.logs):
            found.append("dollars: the GPUs are not known; write --on")
        return found


def show(answer: WhyAnswer) -> None:
    first = True
    for title, found, facts, notes in _sections(answer):
        if not first:
            print_gap()
        first = False
        print_facts(title, facts)
        _show_causes(answer, found)
        _show_fall(found)
        print_notes(notes)
    if answer.trace is not None:
        print_notes([_product_line(each) for each in answer.trace.products[:CURED]], title="GEMMs against their curve")
    if answer.dumps:
        lines = [f"{each.op or 'collective'} {each.number} of group {each.group}"
                 + (f": not {', '.join(each.missing)}" if each.missing else "") + f"; {each.why}"
                 for each in answer.stuck] or ["no group stands still"]  # fmt: skip
        print_notes(lines, title=f"flight recorders of {answer.dumps} ranks")
    if answer.clocks is not None:
        if not first or answer.dumps:
            print_gap()
        print_facts("clocks of GPUs at work", _clock_facts(answer.clocks))
    print_notes(answer.left_out, title="not read")
    print_notes(answer.cannot_say(), title="not answered by these files")
    print_notes(answer.ran.notes if answer.ran else [])


def _clock_facts(clocks: ClockFinding) -> list[tuple[str, Cell]]:
    slowest = clocks.slowest
    facts: list[tuple[str, Cell]] = [
        ("GPUs", f"{len(clocks.gpus)}, the middle one at {clocks.middle_hz / 1e6:,.0f} MHz")
    ]
    facts.append(("slowest", f"{slowest.gpu}: {clocks.told(slowest.hz)}"))
    if clocks.odd is not None:
        facts.append(
            ("apart", f"{slowest.gpu} is {1 - slowest.hz / clocks.others_hz:.0%} below the others, which wait")
        )
    return facts


def _product_line(each: ProductBesideCurve) -> str:
    shape = f"{each.product.m:,} x {each.product.n:,} x {each.product.k:,} {each.product.dtype}"
    ratio = each.measured_s / each.curve_s
    return f"{shape}, {each.product.calls:,} calls: {each.measured_s * 1e3:,.3f} ms each, {ratio:.2f} times its curve"


def _sections(answer: WhyAnswer) -> Iterator[tuple[str, WhySlow, list[tuple[str, Cell]], tuple[str, ...]]]:
    if answer.trace is not None:
        measured = answer.trace.measured
        facts = [("step", _step_line(answer.trace.found)), *_ran_facts(answer)]
        facts.append(("ranks", f"{len(measured.ranks)}, {measured.steps} steps each"))
        facts += [("slow rank", measured.slow_rank)] if measured.slow_rank else []
        yield "where the time of a traced step went", answer.trace.found, facts, measured.notes
    for each in answer.logs:
        pace = each.pace
        facts = [("log", f"{each.log.name}: {each.log.program}, {pace.records} records"), *_ran_facts(answer)]
        if pace.exact:
            facts.append(("step", _step_line(each.found)))
        facts.append(("left out", f"{pace.dropped} at the beginning: {pace.dropped_why}" if pace.dropped else "none"))
        facts.append(("spread", f"{pace.spread:.1%} around the level"))
        facts += [("memory", f"{gib(each.peak_bytes)} GiB at the peak")] if each.peak_bytes else []
        yield "where step time is lost", each.found, facts, pace.notes


def _ran_facts(answer: WhyAnswer) -> list[tuple[str, Cell]]:
    if answer.ran is None:
        return []
    launch = answer.ran.launch
    return [("run", f"{launch.case.model.name} on {launch.case.cluster.name}, {policy_code(launch.policy)}")]


def _step_line(found: WhySlow) -> str:
    expected = found.expected
    if expected is None:
        return time_text(found.step_s)
    band = "inside its band" if found.within_band else "outside of its band"
    return (
        f"{time_text(found.step_s)}, predicted {time_text(expected.step_s)} ({found.slower:+.1%}, {band} of "
        f"{time_text(expected.low_s)} to {time_text(expected.high_s)})"
    )


def _show_causes(answer: WhyAnswer, found: WhySlow) -> None:
    lost = [cause for cause in found.causes if found.lost_s(cause) > LEAST * found.step_s]
    print_gap()
    if not lost:
        print_facts("", [("lost", "nothing above half a percent of the step")])
        return
    predicted = found.expected is not None
    times = ["ms", *(["predicted"] if predicted else []), "lost ms"] if found.in_seconds else []
    rows: list[list[Cell]] = []
    for cause in lost[:SHOWN]:
        seconds = found.lost_s(cause)
        told = [cause.seconds, *([cause.predicted_s or 0.0] if predicted else []), seconds]
        row: list[Cell] = [cause.what, cause.where]
        row += [f"{each * 1e3:,.1f}" for each in told] if found.in_seconds else []
        usd = answer.usd_a_day(seconds / found.step_s)
        shown = "-" if usd is None else f"{usd[0]:,.0f}–{usd[1]:,.0f}"
        rows.append([*row, f"{seconds / found.step_s:.1%}", shown])
    heads = ["cause", "where", *times, "% of step", "USD/day"]
    print_table("lost, the largest first", heads, rows, words=2, breaks=0, bars=("% of step",))
    print_notes([_cured(cause, answer.cure(cause)) for cause in lost[:CURED]], title="what to do")


def _cured(cause: Cause, cure: Cure) -> str:
    told = f" ({cause.evidence})" if cause.evidence else ""
    where = f", {cause.where}" if cause.where else ""
    line = f"{cause.what}{where}{told}: {cure.advice}"
    if cure.options:
        line += f". Here: {', '.join(cure.options)}"
    if cure.gain is not None:
        line += f"; the step predicted {-cure.gain:+.1%}"
    return line


def _show_fall(found: WhySlow) -> None:
    if not found.fall or not found.in_seconds:
        return
    most = max(abs(step.seconds) for step in found.fall) or 1.0
    rows: list[list[Cell]] = []
    for step in found.fall:
        bar = ("#" if step.seconds > 0 else "-") * max(round(BAR * abs(step.seconds) / most), 1)
        rows.append([step.what, bar, f"{step.seconds * 1e3:+,.1f}", f"{step.total_s * 1e3:,.1f}"])
    print_gap()
    print_table("from the ideal step to the measured step", ["", "", "ms", "step ms"], rows, words=2, breaks=0,
                bars=("ms", "step ms"))  # fmt: skip


def data_of(answer: WhyAnswer) -> dict[str, Any]:
    trace, ran = answer.trace, answer.ran
    return {
        "model": ran.launch.case.model.name if ran else None, "cluster": ran.launch.case.cluster.name if ran else None,
        "policy": ran.launch.policy if ran else None, "target": ran.form.name if ran and ran.form else None,
        "usd_per_day": answer.rent_usd,
        "trace": None if trace is None else _found_data(answer, trace.found) | _ranks_data(trace.measured)
        | {"products": [_product_data(each) for each in trace.products]},
        "logs": [_log_data(answer, each) for each in answer.logs],
        "clocks": None if answer.clocks is None else _clock_data(answer.clocks),
        "stuck": [{"group": each.group, "collective": each.number, "op": each.op, "missing": each.missing,
                   "why": each.why} for each in answer.stuck],
        "slower_than_band": answer.too_slow, "not_read": answer.left_out, "cannot_say": answer.cannot_say(),
        "notes": ran.notes if ran else (),
    }  # fmt: skip


def _clock_data(clocks: ClockFinding) -> dict[str, Any]:
    return {
        "boost_hz": clocks.boost_hz, "counted_hz": clocks.counted_hz, "middle_hz": clocks.middle_hz,
        "slow_gpu": clocks.odd.gpu if clocks.odd else None,
        "gpus": [{"gpu": each.gpu, "device": each.device or None, "hz": each.hz, "samples": each.samples,
                  "reason": each.reason or None} for each in clocks.gpus],
    }  # fmt: skip


def _product_data(each: ProductBesideCurve) -> dict[str, Any]:
    product = each.product
    return {"m": product.m, "n": product.n, "k": product.k, "dtype": product.dtype, "calls": product.calls,
            "measured_s": each.measured_s, "curve_s": each.curve_s, "lost_s": each.lost_s}  # fmt: skip


def _found_data(answer: WhyAnswer, found: WhySlow) -> dict[str, Any]:
    expected = found.expected
    return {
        "step_s": found.step_s if found.in_seconds else None, "predicted_step_s": expected.step_s if expected else None,
        "predicted_low_s": expected.low_s if expected else None,
        "predicted_high_s": expected.high_s if expected else None,
        "ideal_step_s": expected.ideal_s if expected else None, "slower": found.slower,
        "within_band": found.within_band,
        "causes": [_cause_data(answer, found, cause) for cause in found.causes],
        "fall": found.fall if found.in_seconds else [],
    }  # fmt: skip


def _cause_data(answer: WhyAnswer, found: WhySlow, cause: Cause) -> dict[str, Any]:
    lost = found.lost_s(cause)
    cure = answer.cure(cause) if lost > LEAST * found.step_s else None
    return {
        "cause": cause.code, "what": cause.what, "where": cause.where or None, "evidence": cause.evidence or None,
        "measured_s": cause.seconds if found.in_seconds else None, "predicted_s": cause.predicted_s,
        "lost_s": lost if found.in_seconds else None, "share": lost / found.step_s,
        "usd_per_day": answer.usd_a_day(lost / found.step_s),
        "cure": None if cure is None else {"advice": cure.advice, "options": cure.options, "policy": cure.policy,
                                           "gain": cure.gain},
    }  # fmt: skip


def _ranks_data(measured: MeasuredStep) -> dict[str, Any]:
    waits = measured.waits
    return {
        "steps": measured.steps, "slow_rank": measured.slow_rank or None,
        "ranks": [
            {"rank": each.rank, "step_s": each.step_s, "parts_s": each.parts, "hidden_s": each.hidden,
             "kernels_s": each.families,
             "last_share": waits.last_share[place] if waits else None,
             "caused_s": waits.caused_s[place] / each.steps if waits else None}
            for place, each in enumerate(measured.ranks)
        ],
        "slow_groups": [{"ranks": each.ranks, "op": each.op, "times": each.times} for each in waits.slow_groups]
        if waits else [],
        "notes": measured.notes,
    }  # fmt: skip


def _log_data(answer: WhyAnswer, each: LogAnswer) -> dict[str, Any]:
    pace = each.pace
    return {
        "file": each.log.name, "program": each.log.program, "records": pace.records, "dropped": pace.dropped,
        "dropped_why": pace.dropped_why, "in_seconds": pace.exact, "spread": pace.spread, "restarts": pace.restarts,
        "peak_bytes": each.peak_bytes, **_found_data(answer, each.found), "notes": pace.notes,
    }  # fmt: skip
