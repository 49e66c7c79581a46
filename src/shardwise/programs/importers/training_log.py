"""A training log of any known form -> step time or tokens/s of a steady step, and peak memory."""

from dataclasses import dataclass
from statistics import median

from shardwise.measured.diagnose.logged import LoggedPhases, RunLog
from shardwise.measured.diagnose.pace import warm_up_of
from shardwise.programs.importers.logs import log_forms, parse_log


@dataclass(frozen=True)
class RunFacts:
    """What a log says of a steady step; what it does not say is None."""

    software: str
    steps: int
    """steps that were counted"""
    step_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    peak_bytes: float | None = None
    memory_is: str = ""
    """which peak the log prints"""
    update: LoggedPhases | None = None
    """of reinforcement learning: medians of what a step's update took and its answers' lengths; nothing else is said"""


def is_training_log(text: str) -> bool:
    return parse_log(text[: 2**22]) is not None


def parse(text: str) -> RunFacts:
    log = parse_log(text)
    if log is None:
        titles = ", ".join(form.title for form in log_forms().values())
        raise ValueError(f"from: no training step in the log; write one of {titles}")
    return facts_of(log)


def facts_of(log: RunLog) -> RunFacts:
    """Seconds where the program prints them, else its rate of one GPU; of reinforcement learning its updates alone."""
    if updates := [step.phases for step in log.steps if step.phases is not None and step.phases.update_s]:
        return RunFacts(log.program, len(updates), update=_middle(updates))
    peaks = [(step.peak_bytes, step.memory_is) for step in log.steps if step.peak_bytes]
    peak, meaning = max(peaks) if peaks else (None, "")
    for name in ("seconds", "tokens_per_s_per_gpu"):
        told = [value for step in log.steps if (value := getattr(step, name))]
        if told:
            paces = told if name == "seconds" else [1.0 / value for value in told]
            later = told[warm_up_of(paces) :]
            seconds = median(later) if name == "seconds" else None
            rate = median(later) if name != "seconds" else None
            return RunFacts(log.program, len(later), seconds, rate, peak, meaning)
    raise ValueError(
        f"from: the log of {log.program} states neither the time of a step nor tokens per second of a GPU; write one "
        "that does"
    )


def _middle(steps: list[LoggedPhases]) -> LoggedPhases:
    later = steps[warm_up_of([step.update_s or 0.0 for step in steps]) :]
    means = [step.answer_tokens for step in later if step.answer_tokens]
    longest = [step.longest_tokens for step in later if step.longest_tokens]
    return LoggedPhases(
        update_s=median(step.update_s or 0.0 for step in later), answer_tokens=median(means) if means else None,
        longest_tokens=max(longest, default=None),
    )  # fmt: skip
