"""What `shardwise plan --measure` shows."""

from collections.abc import Iterator

import numpy as np

from shardwise.answers._together import LearnedFactor, MeasureOutcome, RankedAgain, TriedPolicy
from shardwise.answers.answer import Cell, FactList, Notes, Part, Table
from shardwise.report.terminal import policy_code
from shardwise.show.cli._measure import MeasureAnswer
from shardwise.units import share_text


def measure_parts(answer: MeasureAnswer, top: int) -> Iterator[Part]:
    yield _choice(answer)
    if answer.records:
        yield _trials(answer)
    belief = answer.belief
    mean = belief.expected().mean
    again: list[list[Cell]] = [
        [policy_code(answer.pool[i].policy), f"{answer.pool[i].step_s:.4g}", f"{np.exp(mean[i]):.4g}",
         f"{seconds:.4g}" if (seconds := belief.seconds.get(i)) is not None else None]
        for i in belief.ranked()[:top]
    ]  # fmt: skip
    yield Table("ranked again", ["policy", "predicted s", "expected s", "measured s"], again, breaks=0)
    yield Notes(_learned_lines(answer), "what the trials say")


def _choice(answer: MeasureAnswer) -> FactList:
    taken, fastest, count = answer.belief.ranked()[0], answer.belief.best, len(answer.records)
    other = "" if answer.place is None else answer.place.other
    where = f" on {'the CPU' if other == 'cpu' else other}" if other else ""
    title = f"after {'1 trial' if count == 1 else f'{count} trials'}{where}"
    if fastest is None:
        return FactList(title, [("take", "nothing: no trial gave a result")])
    facts: list[tuple[str, Cell]] = [("take", _words(answer, taken))]
    if fastest != taken:
        facts.append(("fastest tried", _words(answer, fastest)))
    if 0 not in (taken, fastest):
        facts.append(("predicted best", _words(answer, 0)))
    return FactList(title, [*facts, ("command", answer.command)])


def _words(answer: MeasureAnswer, index: int) -> str:
    seconds, mean = answer.belief.seconds.get(index), answer.belief.expected().mean
    known = f"measured {seconds:.4g} s" if seconds is not None else f"expected {np.exp(mean[index]):.4g} s, not tried"
    if index in answer.belief.seconds and seconds is None:
        known = "gave no result"
    return f"{policy_code(answer.pool[index].policy)}: {known}; predicted {answer.pool[index].step_s:.4g} s"


def _elsewhere(answer: MeasureAnswer) -> bool:
    """Whether trials ran on another machine than planned for."""
    return answer.place is not None and bool(answer.place.other)


def _trials(answer: MeasureAnswer) -> Table:
    best, rows = np.inf, list[list[Cell]]()
    for record in answer.records:
        found, step = answer.pool[record.policy_index], record.outcome.step_s
        best = min(best, step or np.inf)
        told = f"{step:.4g}" if step is not None else "refused" if record.outcome.refused else "failed"
        rows.append([policy_code(found.policy), f"{found.step_s:.4g}", told, share_text(record.worth),
                     f"{best:.4g}" if np.isfinite(best) else None])  # fmt: skip
    heads = ["policy", "predicted s", "measured s", "worth", "best s"]
    title, bars = "trials, in the order they were run", ("predicted s", "measured s")
    return Table(title, heads, rows, breaks=0, bars=bars)


def _learned_lines(answer: MeasureAnswer) -> list[str]:
    failed = [record for record in answer.records if record.outcome.step_s is None]
    lines = ["the plan is for another machine: the trials say which policy is fast here, and nothing of the machine "
             "that was planned for"] if _elsewhere(answer) else []  # fmt: skip
    lines += [f"{each.cause} x {each.factor:.2f}, of a step that it decides alone" for each in answer.learned]
    lines += [f"{policy_code(answer.pool[r.policy_index].policy)} gave no result: {r.outcome.why}" for r in failed]
    if answer.belief.wider > 1.5:
        lines.append(f"measured steps lie {answer.belief.wider:.1f} times as far off as the band says; it was widened")
    if answer.records and answer.belief.best is not None:
        lines.append("worth: expected shortening of the best step so far, when the trial was chosen; of the first, its "
                     "chance to be fast and fit")  # fmt: skip
    return [*lines, *answer.notes]


def measure_outcome(answer: MeasureAnswer) -> MeasureOutcome:
    belief, pool = answer.belief, answer.pool
    expected = belief.expected()
    step, low, high, fits = np.exp(expected.mean), np.exp(expected.low), np.exp(expected.high), belief.fits()
    return MeasureOutcome(
        trials=[
            TriedPolicy(policy=pool[r.policy_index].policy, predicted_s=pool[r.policy_index].step_s,
                  step_s=r.outcome.step_s, why=r.outcome.why or None, refused=r.outcome.refused, worth=float(r.worth))
            for r in answer.records
        ],
        learned=[LearnedFactor(cause=each.cause, factor=float(each.factor)) for each in answer.learned],
        band_widened=float(belief.wider),
        ranked=[
            RankedAgain(
                policy=pool[i].policy, predicted_s=pool[i].step_s, expected_s=float(step[i]),
                low_s=float(low[i]), high_s=float(high[i]), fits_chance=float(fits[i]),
                measured_s=belief.seconds.get(i),
            )
            for i in belief.ranked()
        ],
        take=answer.take.policy, command=answer.command, on="" if answer.place is None else answer.place.other,
        notes=answer.notes,
    )  # fmt: skip
