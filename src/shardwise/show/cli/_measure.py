"""`shardwise plan --measure N`: short trials on the user's own machines, the most informative first; what they say of
the other policies; and the profile that keeps them."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as data_replace
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from shardwise.cost.calibrate.profile import LearnedRun, Point
from shardwise.cost.calibrate.profile_toml import MARK, to_toml
from shardwise.measured.learn import CauseLearned, measured_run, what_runs_say, with_runs
from shardwise.plan import Candidate, Ranking
from shardwise.plan.trials import TrialBelief, belief_of
from shardwise.question import Question
from shardwise.question.command import command_of
from shardwise.report.terminal import policy_code
from shardwise.show.cli._logged_run import empty_profile, rates_of
from shardwise.show.cli._measure_flags import CANDIDATES, LIMIT, TrialFlags
from shardwise.show.cli._progress import one_by_one
from shardwise.show.cli._trial_runs import (
    Runner,
    TrialOutcome,
    TrialPlace,
    by_command,
    by_run,
    checked_command,
    place_of,
    policy_words,
    run_words,
)
from shardwise.step.estimate.learned import runs_for
from shardwise.units import seconds_of
from shardwise.whole_file import OutputFile
from shardwise.work.case import Case

KEPT = "trials"
"""where a profile keeps them, those without a result among them"""
LEAST_FACTOR, MOST_CAUSES = 0.01, 4
"""effects of a cause below this, in the logarithm of the step, are not printed, nor more causes"""


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
    learned: list[CauseLearned]
    place: TrialPlace | None
    """None: the user's own command ran them"""
    command: str
    """of what is to be taken"""
    notes: list[str]

    @property
    def take(self) -> Candidate:
        return self.pool[self.belief.ranked()[0]]


def profile_file(path: Path) -> OutputFile:
    return OutputFile(path, "learned", MARK.encode())


def measured_answer(
    asked: TrialFlags, model: str, on: str, case: Question, whole: Case, ranked: Ranking
) -> MeasureAnswer:
    """Ctrl-C keeps what was measured."""
    pool = ranked.best[:CANDIDATES]
    limit = seconds_of(asked.measure_limit or LIMIT, "measure-limit")
    place, run = None, None
    if asked.measure_with is not None:
        run = by_command(checked_command(asked.measure_with), limit)
    else:
        place = place_of(asked.measure_device, whole.cluster.gpu, whole.cluster.gpus)
        run = by_run(model, on, case.job, limit, place)
    other = "" if place is None else place.other
    belief = _belief(case, whole, pool, other)
    kept = _Kept(asked, case, whole, belief, other)
    notes = kept.taken()
    records = _tried(asked, belief, run, kept.write, notes)
    kept.write(notes)
    taken = pool[belief.ranked()[0]].policy
    command = (command_of(model, on, case.job, taken, case.stack.name) if place is None
               else shlex.join(run_words(model, on, case.job, taken, place.device)))  # fmt: skip
    return MeasureAnswer(belief, pool, tuple(records), _learned(belief), place, command, notes)


def _belief(case: Question, whole: Case, pool: Sequence[Candidate], other: str) -> TrialBelief:
    """Before any trial: with the profile's runs, unless the trials run on another machine."""
    plain = whole if case.profile is None else data_replace(case, profile=rates_of(case.profile)).on(whole.cluster)
    runs = [_trial_run(plain, found) for found in pool]
    names = {run.source for run in runs}
    before = () if other else runs_for(case.profile, whole.stack.name)
    return belief_of(
        whole, [found.policy for found in pool], runs, np.array([found.peak_bytes for found in pool]),
        [run for run in before if run.source not in names],
    )  # fmt: skip


def _trial_run(plain: Case, found: Candidate) -> LearnedRun:
    """The policy as a run that takes what is predicted of it without any run of the profile."""
    run = measured_run(plain, found.policy, f"trial {' '.join(policy_words(found.policy))}"[:200], 1.0, None)
    step_s = run.predicted_s if found.data is None else found.step_s
    return replace(run, measured_s=step_s, predicted_s=step_s)


def _learned(belief: TrialBelief) -> list[CauseLearned]:
    """The causes that the runs moved most."""
    causes = what_runs_say(belief.known) if belief.known else []
    return [each for each in causes if abs(np.log(each.factor)) >= LEAST_FACTOR][:MOST_CAUSES]


def _tried(
    asked: TrialFlags, belief: TrialBelief, run: Runner, keep: Callable[[list[str]], None], notes: list[str]
) -> list[TrialRecord]:
    records: list[TrialRecord] = []
    with one_by_one("trial") as told:
        try:
            while len(records) < (asked.measure or 0):
                chosen = belief.next()
                if chosen is None:
                    notes.append(f"stopped after {_trials(len(records))}: nothing left is expected to shorten the step")
                    break
                policy, best = belief.policies[chosen[0]], belief.best
                so_far = "" if best is None else f"; best so far {belief.seconds[best]:.4g} s"
                told(f"{policy_code(policy)}{so_far}", len(records), asked.measure or 0)
                outcome = run(policy)
                belief.tried(chosen[0], outcome.step_s, began=not outcome.refused)
                records.append(TrialRecord(chosen[0], outcome, chosen[1]))
                keep([])
        except KeyboardInterrupt:
            if not records:
                raise
            notes.append(f"interrupted: {len(records)} of {asked.measure} trials were run, and count")
    return records


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count} trials"


@dataclass(frozen=True)
class _Kept:
    """Trials in the profile: those it holds are not run again, those that are run are written into it."""

    asked: TrialFlags
    case: Question
    whole: Case
    belief: TrialBelief
    other: str
    """the machine's name, where it is not the one that was planned for: what is measured on one says nothing of the
    other"""

    def taken(self) -> list[str]:
        known = {" ".join(policy_words(policy)): index for index, policy in enumerate(self.belief.policies)}
        taken = 0
        for point in () if self.case.profile is None else self.case.profile.measured.get(KEPT, ()):
            index, step = known.get(str(point.get("policy"))), point.get("step_s")
            if index is not None and str(point.get("on", "")) == self.other:
                self.belief.tried(index, float(step) if isinstance(step, int | float) and step > 0 else None)
                taken += 1
        return [f"{_trials(taken)} of the profile count, and are not run again"] if taken else []

    def write(self, notes: list[str]) -> None:
        """With the measured ones as runs of the profile, which correct later answers for the same machine."""
        if self.asked.learned is None or not self.belief.seconds:
            return
        gpu = self.whole.cluster.gpu.name
        before = self.case.profile or empty_profile(f"trials of {self.case.model.name}", gpu)
        where: Point = {"on": self.other} if self.other else {}
        fresh: list[Point] = [
            {"policy": " ".join(policy_words(self.belief.policies[index])), "step_s": seconds or 0.0, **where}
            for index, seconds in self.belief.seconds.items() if index not in self.belief.never_began
        ]  # fmt: skip
        named = {(point["policy"], point.get("on")) for point in fresh}
        old = [point for point in before.measured.get(KEPT, ()) if (point.get("policy"), point.get("on")) not in named]
        kept = replace(before, measured={**before.measured, KEPT: (*old, *fresh)})
        if not self.other:
            kept, refused = with_runs(kept, self.belief.known[len(self.belief.before) :])
            notes += [f"{run.source}: contradicts the other runs of the profile, and corrects nothing"
                      for run in refused]  # fmt: skip
        profile_file(self.asked.learned).write(to_toml(kept).encode())
        notes.append(f"written to {self.asked.learned}; give it with --profile {self.asked.learned}")
