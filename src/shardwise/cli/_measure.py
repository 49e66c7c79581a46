"""`shardwise plan --measure N`: short trials on the user's own machines, the most informative first; what they say of
the other policies; and the profile that keeps them."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.calibrate.profile import Profile, RunCorrection
from shardwise.calibrate.profile_toml import MARK, to_toml
from shardwise.case import Case
from shardwise.cli._case import OpenCase
from shardwise.cli._groups import OUTPUT, QUESTION
from shardwise.cli._output import Cell, print_gap, print_notes, print_table
from shardwise.cli._progress import bar
from shardwise.cli._trial_runs import Runner, TrialOutcome, by_command, by_run, checked_command, policy_words
from shardwise.importers.adjust import LoggedRun, correction_of
from shardwise.importers.training_log import RunFacts
from shardwise.plan import Candidate, Ranking
from shardwise.plan.trials import HELD, Learned, TrialBelief, belief_of
from shardwise.report.terminal import policy_code
from shardwise.units import seconds_of, share_text
from shardwise.whole_file import OutputFile

CANDIDATES = 64
"""policies of the plan that trials choose from, the fastest by prediction"""
MOST_TRIALS = 100
OWN_STACK = "shardwise"
LIMIT = "10 min"
KEPT = "trials"
"""where a profile keeps them"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MeasureFlags:
    measure: Annotated[
        int | None,
        Parameter(group=QUESTION, help="Run so many short trials here, the most informative first, and rank again."),
    ] = None
    measure_with: Annotated[
        str | None,
        Parameter(
            group=QUESTION,
            help="With --measure: the command of a trial, with {policy}, {tp}, {pp}, ...; prints JSON with step_s.",
        ),
    ] = None
    measure_limit: Annotated[
        str | None, Parameter(group=QUESTION, help=f"With --measure: the time one trial may take; default {LIMIT!r}.")
    ] = None
    learned: Annotated[
        Path | None,
        Parameter(group=OUTPUT, help="With --measure: the profile to write, trials included; give it with --profile."),
    ] = None


NO_TRIALS = MeasureFlags()


@dataclass(frozen=True)
class TrialRecord:
    policy_index: int
    outcome: TrialOutcome
    worth: float
    """expected shortening of the best step when it was chosen, as a share; at first the chance to fit"""


@dataclass(frozen=True)
class MeasureAnswer:
    belief: TrialBelief
    pool: tuple[Candidate, ...]
    records: tuple[TrialRecord, ...]
    learned: list[Learned]
    notes: list[str]

    @property
    def take(self) -> Candidate:
        return self.pool[self.belief.ranked()[0]]


def check_measure(asked: MeasureFlags, sync: str | None, stack: str) -> None:
    """Bad flags fail before anything long."""
    if asked.measure is None:
        for field in fields(MeasureFlags):
            if getattr(asked, field.name) is not None:
                name = field.name.replace("_", "-")
                raise ValueError(f"{name}: --{name} is asked of trials; write --measure 8 too, or leave it out")
        return
    if not 1 <= asked.measure <= MOST_TRIALS:
        raise ValueError(f"measure: {asked.measure} is out of range; write 1 to {MOST_TRIALS} trials")
    if sync is not None:
        raise ValueError("measure: trials compare steps of the mean gradient; leave --sync out")
    if asked.measure_with is not None:
        checked_command(asked.measure_with)
    elif stack != OWN_STACK:
        raise ValueError(f"measure: trials run by `shardwise run` are predicted with its own stack, not {stack}; write "
                         "--stack shardwise, or --measure-with and a command of yours")  # fmt: skip
    limit = seconds_of(asked.measure_limit or LIMIT, "measure-limit")
    if not 1 <= limit <= 86400:
        raise ValueError(f"measure-limit: {asked.measure_limit!r} is out of range; write '1 s' to '24 h'")
    if asked.learned is not None:
        profile_file(asked.learned)


def profile_file(path: Path) -> OutputFile:
    return OutputFile(path, "learned", MARK.encode())


def measured_answer(
    asked: MeasureFlags, model: str, on: str, case: OpenCase, whole: Case, ranked: Ranking
) -> MeasureAnswer:
    """Ctrl-C keeps what was measured."""
    pool = ranked.best[:CANDIDATES]
    steps, peaks = (np.array([getattr(found, name) for found in pool]) for name in ("step_s", "peak_bytes"))
    belief = belief_of(whole, [found.policy for found in pool], steps, peaks)
    notes = _taken_from(case.profile, belief)
    limit = seconds_of(asked.measure_limit or LIMIT, "measure-limit")
    run = (by_run(model, on, case.job, limit) if asked.measure_with is None
           else by_command(checked_command(asked.measure_with), limit))  # fmt: skip
    records = _tried(asked, belief, run, lambda: _write(asked, case, whole, belief, []), notes)
    _write(asked, case, whole, belief, notes)
    return MeasureAnswer(belief, pool, tuple(records), belief.learned(), notes)


def _tried(asked: MeasureFlags, belief: TrialBelief, run: Runner, keep: Any, notes: list[str]) -> list[TrialRecord]:
    records: list[TrialRecord] = []
    with bar("trials") as told:
        try:
            while len(records) < (asked.measure or 0):
                told(len(records), asked.measure or 0)
                chosen = belief.next()
                if chosen is None:
                    notes.append(f"stopped after {len(records)} trials: nothing left is expected to shorten the step")
                    break
                outcome = run(belief.policies[chosen[0]])
                belief.tried(chosen[0], outcome.step_s)
                records.append(TrialRecord(chosen[0], outcome, chosen[1]))
                keep()
        except KeyboardInterrupt:
            if not records:
                raise
            notes.append(f"interrupted: {len(records)} of {asked.measure} trials were run, and count")
    return records


def _taken_from(profile: Profile | None, belief: TrialBelief) -> list[str]:
    """Trials that the profile holds already are not run again."""
    known = {" ".join(policy_words(policy)): index for index, policy in enumerate(belief.policies)}
    taken = 0
    for point in () if profile is None else profile.measured.get(KEPT, ()):
        index, step = known.get(str(point.get("policy"))), point.get("step_s")
        if index is not None:
            belief.tried(index, float(step) if isinstance(step, int | float) and step > 0 else None)
            taken += 1
    return [f"{taken} trials of the profile count, and are not run again"] if taken else []


def _write(asked: MeasureFlags, case: OpenCase, whole: Case, belief: TrialBelief, notes: list[str]) -> None:
    """The profile with every trial in it, and with the fastest one as its run: later plans start from there."""
    if asked.learned is None or not belief.seconds:
        return
    before = case.profile or Profile(name=f"trials of {case.model.name}", device=whole.cluster.gpu.name)
    fresh = [
        {"policy": " ".join(policy_words(belief.policies[index])), "step_s": seconds if seconds is not None else 0.0}
        for index, seconds in belief.seconds.items()
    ]
    named = {point["policy"] for point in fresh}
    old = [point for point in before.measured.get(KEPT, ()) if point.get("policy") not in named]
    kept = replace(before, measured={**before.measured, KEPT: (*old, *fresh)})
    correction = _correction(case, whole, belief, notes)
    if correction is not None:
        kept = replace(kept, run=correction)
    profile_file(asked.learned).write(to_toml(kept).encode())
    notes.append(f"written to {asked.learned}; give it with --profile {asked.learned}")


def _correction(case: OpenCase, whole: Case, belief: TrialBelief, notes: list[str]) -> RunCorrection | None:
    if belief.best is None:
        return None
    seconds = belief.seconds[belief.best]
    run = LoggedRun(
        facts=RunFacts("trial", 1, seconds), model=case.model, cluster=whole.cluster, job=case.job,
        policy=belief.policies[belief.best], stack=case.stack, profile=case.profile,
    )  # fmt: skip
    try:
        return correction_of(run)
    except ValueError:
        notes.append("the fastest trial is farther from its prediction than one factor on all kernels can close: the "
                     "profile keeps the trials alone")  # fmt: skip
        return None


def show_measure(answer: MeasureAnswer, top: int) -> None:
    belief, best = answer.belief, np.inf
    rows: list[list[Cell]] = []
    for record in answer.records:
        found, step = answer.pool[record.policy_index], record.outcome.step_s
        best = min(best, step or np.inf)
        told = f"{step:.4g}" if step is not None else "failed"
        rows.append([policy_code(found.policy), f"{found.step_s:.4g}", told, share_text(record.worth),
                     f"{best:.4g}" if np.isfinite(best) else None])  # fmt: skip
    print_gap()
    print_table("trials, in the order they were run", ["policy", "predicted s", "measured s", "worth", "best s"], rows,
                breaks=0)  # fmt: skip
    print_gap()
    mean, _ = belief.expected()
    again: list[list[Cell]] = [
        [policy_code(answer.pool[i].policy), f"{answer.pool[i].step_s:.4g}", f"{np.exp(mean[i]):.4g}",
         f"{seconds:.4g}" if (seconds := belief.seconds.get(i)) is not None else None]
        for i in belief.ranked()[:top]
    ]  # fmt: skip
    print_table("ranked again", ["policy", "predicted s", "expected s", "measured s"], again, breaks=0)
    print_notes(_learned_lines(answer), title="what the trials say")


def _learned_lines(answer: MeasureAnswer) -> list[str]:
    failed = [record for record in answer.records if record.outcome.step_s is None]
    lines = [f"{each.what}: {each.factor:.2f} x the predicted step" for each in answer.learned]
    lines += [f"{policy_code(answer.pool[r.policy_index].policy)} gave no result: {r.outcome.why}" for r in failed]
    if answer.belief.wider > 1.5:
        lines.append(f"measured steps lie {answer.belief.wider:.1f} times as far off as the band says; it was widened")
    return [*lines, *answer.notes]


def measure_data(answer: MeasureAnswer) -> dict[str, Any]:
    belief = answer.belief
    mean, deviation = belief.expected()
    step = np.exp(mean)
    return {
        "trials": [
            {"policy": answer.pool[r.policy_index].policy, "predicted_s": answer.pool[r.policy_index].step_s,
             "step_s": r.outcome.step_s, "why": r.outcome.why or None, "worth": r.worth}
            for r in answer.records
        ],
        "learned": [{"what": each.what, "factor": each.factor} for each in answer.learned],
        "band_widened": belief.wider,
        "ranked": [
            {"policy": answer.pool[i].policy, "predicted_s": answer.pool[i].step_s, "expected_s": float(step[i]),
             "low_s": float(step[i] * np.exp(-HELD * deviation[i])),
             "high_s": float(step[i] * np.exp(HELD * deviation[i])), "fits_chance": float(fits),
             "measured_s": belief.seconds.get(i)}
            for i in belief.ranked() for fits in [belief.fits()[i]]
        ],
        "take": answer.take.policy, "notes": answer.notes,
    }  # fmt: skip
