"""After a run: what happened first, on which rank, what was lost, how to go on and what to change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.failure_lines import (
    LEVELS,
    UNEXPLAINED,
    FailureLine,
    failure_kinds,
    names_missing,
    sign_of,
)
from shardwise.measured.diagnose.health.found import Health
from shardwise.measured.diagnose.recorder import IN_A_CIRCLE, NEVER_ENDED, Stuck
from shardwise.measured.diagnose.records import RunRecords
from shardwise.measured.diagnose.timeouts import timed_out
from shardwise.screen import from_file

FATAL = frozenset({*failure_kinds(), UNEXPLAINED, "network"})


@dataclass(frozen=True)
class SavedState:
    """One checkpoint on the disk."""

    name: str
    step: int | None
    damage: str
    """empty: every byte is as it was written"""
    at: str = ""


@dataclass(frozen=True)
class Happened:
    """One line of what happened, in its order."""

    at_s: float | None
    rank: int | None
    text: str
    source: str


@dataclass(frozen=True)
class Diagnosis:
    ended: str
    """finished, stopped, failed, or unknown: it may go on"""
    last_step: int | None
    causes: tuple[Cause, ...]
    """the one to begin with first"""
    happened: tuple[Happened, ...]
    lost_steps: int | None
    """that have to be made again; None where nothing is known of checkpoints"""
    lost_s: float | None
    resume: SavedState | None

    @property
    def failed(self) -> bool:
        return self.ended == "failed"


def diagnose(
    run: RunRecords | None, health: Health | None, stuck: Sequence[Stuck], saved: Sequence[SavedState],
    lines: Sequence[FailureLine], others: Sequence[Cause] = (),
) -> Diagnosis:  # fmt: skip
    """`saved`: newest first, each verified; `lines`: of logs, in their order; `others`: what logs of steps, traces and
    counters tell."""
    fatal = [*(_of_records(run) if run else []), *_of_recorders(stuck, run)]
    fatal += _of_lines(lines, explained=bool(fatal) or (run is not None and run.done))
    damaged = [
        Cause(code="damaged_checkpoint", seconds=0.0, where=each.name, evidence=each.damage)
        for each in saved if each.damage
    ]  # fmt: skip
    slow = [*(health.causes if health else ()), *others]
    causes = _once([*fatal, *damaged, *slow])
    last = max((rank.last_step for rank in run.ranks.values()), default=None) if run else None
    whole = next((each for each in saved if not each.damage), None)
    lost = None
    if saved and last is not None:
        lost = max(last - ((whole.step or 0) if whole else 0), 0)
    step_s = health.step_s if health else None
    return Diagnosis(
        ended=_ended(run, fatal), last_step=last, causes=tuple(causes), happened=tuple(_happened(run, lines)),
        lost_steps=lost, lost_s=lost * step_s if lost is not None and step_s else None, resume=whole,
    )  # fmt: skip


def _ended(run: RunRecords | None, fatal: Sequence[Cause]) -> str:
    if any(cause.code != "stopped" for cause in fatal):
        return "failed"
    if fatal:
        return "stopped"
    return "finished" if run is not None and run.done else "unknown"


def _of_records(run: RunRecords) -> list[Cause]:
    """Who was killed, who fell silent, whose own words say why; the others only noticed."""
    found: list[Cause] = []
    for event in run.launcher:
        sign = sign_of(event.text)
        if sign and sign[0] in ("killed", "segfault", "shared_memory"):
            found.append(_cause(sign[0], event.rank, event.text))
    for event in run.events:
        if event.what == "save failed":
            sign = sign_of(event.text)
            code = "disk_full" if sign and sign[0] == "disk_full" else "unsaved"
            found.append(_cause(code, None, event.text, event.step))
    for number, rank in run.ranks.items():
        why = rank.end.why if rank.end else ""
        sign = sign_of(why) if why else None
        if sign and sign[0] not in ("silent", "lost_peer", "unsaved") and not found:
            found.append(_cause(sign[0], None if sign[0] in ("not_finite", "stopped") else number, why, rank.last_step))
    return found or _silent(run)


def _silent(run: RunRecords) -> list[Cause]:
    """Ranks that wrote no end while others gave up waiting for them."""
    gave_up = {number: rank for number, rank in run.ranks.items() if rank.end and rank.end.why}
    open_ = [number for number, rank in run.ranks.items() if rank.end is None]
    if not gave_up:
        return []
    said = next((rank.end.why for rank in gave_up.values() if rank.end), "")
    if open_:
        return [_cause("silent", number, f"it wrote no end; {said}", run.ranks[number].last_step + 1)
                for number in open_[:1]]  # fmt: skip
    sign = sign_of(said)
    return [_cause("silent", sign[1], said)] if sign and sign[0] == "silent" else []


def _of_recorders(stuck: Sequence[Stuck], run: RunRecords | None) -> list[Cause]:
    """Several groups may stand still; the earliest call that nobody made says why. Ranks that left no recording are not
    in it: the records know them."""
    known = run is not None and any(rank.end is None for rank in run.ranks.values())
    for each in stuck:
        text = f"{each.op or 'collective'} {each.number} of group {each.group}"
        if each.missing and ("something else" in each.why or each.why == IN_A_CIRCLE):
            return [_cause("program", _rank_in(each.missing[0]), f"{text}: {', '.join(each.missing)} {each.why}")]
        if each.missing:
            return [
                _cause("silent", _rank_in(each.missing[0]), f"{text}: {', '.join(each.missing)} never came; {each.why}")
            ]
        if each.why == NEVER_ENDED and not known:
            return [_cause("network", None, f"{text}: {each.why}")]
    return []


def _of_lines(lines: Sequence[FailureLine], *, explained: bool) -> list[Cause]:
    """The most telling kinds of line, at their first occurrence. Ranks that only noticed a failure are named where
    nothing else explains it, and never as its culprit."""
    first: dict[str, FailureLine] = {}
    for line in sorted(lines, key=lambda line: line.weak):
        first.setdefault(line.code, line)
    telling = sorted((line for code, line in first.items() if code != UNEXPLAINED), key=_belief(lines))
    if causes := [line for line in telling if failure_kinds()[line.code].level != LEVELS[-1] and not line.weak]:
        return [_cause(line.code, None if failure_kinds()[line.code].everywhere else _rank_of(line, lines), line.text)
                for line in causes[:2]]  # fmt: skip
    if explained:
        return []
    return [_symptom(line, lines) for line in telling[:1] or list(first.values())]


def _rank_of(first: FailureLine, lines: Sequence[FailureLine]) -> int | None:
    """The rank of a failure's first line, or the only one that further lines of the same kind name."""
    if first.rank is not None:
        return first.rank
    ranks = {line.rank for line in lines if line.code == first.code and line.rank is not None}
    return ranks.pop() if len(ranks) == 1 else None


def _belief(lines: Sequence[FailureLine]) -> Callable[[FailureLine], tuple[bool, int, int]]:
    """What is not weak first, then by level, then by kind; exceptions by their order: what follows the first is often
    its consequence."""
    kinds = list(failure_kinds())
    place = {id(line): number for number, line in enumerate(lines)}

    def key(line: FailureLine) -> tuple[bool, int, int]:
        level = LEVELS.index(failure_kinds()[line.code].level)
        return line.weak, level, place[id(line)] if LEVELS[level] == "exception" else kinds.index(line.code)

    return key


def _symptom(line: FailureLine, lines: Sequence[FailureLine]) -> Cause:
    late = timed_out(each.text for each in lines if each.code == "silent") if line.code == "silent" else None
    if late is not None:
        return _cause("silent", late.behind[0] if late.behind else None, late.text)
    names_culprit = line.code == "silent" and names_missing(line.text)
    return _cause(line.code, line.rank if names_culprit or line.code == UNEXPLAINED else None, line.text)


def _once(causes: Sequence[Cause]) -> list[Cause]:
    """Of several witnesses of one thing the first."""
    found: dict[str, Cause] = {}
    for cause in causes:
        key = cause.code if cause.code != "damaged_checkpoint" else f"{cause.code} {cause.where}"
        found.setdefault(key, cause)
    if any(code in FATAL for code in found if code not in ("unsaved", "stopped")):
        # a checkpoint that was under way when the run broke, or why it could not be written, is told already
        found.pop("unsaved", None)
    return list(found.values())


def _cause(code: str, rank: int | None, evidence: str, since: int | None = None) -> Cause:
    where = f"rank {rank}" if rank is not None else ""
    return Cause(code=code, seconds=0.0, where=where, rank=rank, evidence=from_file(evidence), since=since)


def _rank_in(text: str) -> int | None:
    digits = "".join(filter(str.isdigit, text))
    return int(digits) if digits else None


def _happened(run: RunRecords | None, lines: Sequence[FailureLine]) -> list[Happened]:
    known = {rank.end.why for rank in run.ranks.values() if rank.end} if run is not None else set()
    found = [Happened(line.at_s, line.rank, from_file(line.text.strip()), "log") for line in lines
             if line.text.strip() not in known]  # fmt: skip
    if run is not None:
        found += [Happened(event.at_s, event.rank, f"{event.what}" + (f" step {event.step}" if event.step else "")
                           + (f": {from_file(event.text)}" if event.text else ""), "records")
                  for event in run.events]  # fmt: skip
        for number, rank in run.ranks.items():
            found += [Happened(head.at_s, number, f"began at step {head.first_step}", "records") for head in rank.heads]
            if rank.end is not None:
                found.append(Happened(rank.end.at_s, number, f"ended after step {rank.end.step}"
                                      + (f": {rank.end.why}" if rank.end.why else ""), "records"))  # fmt: skip
            else:
                found.append(Happened(rank.last_at_s, number, f"last sign, step {rank.last_step}", "records"))
    return sorted(found, key=lambda each: (each.at_s is None, each.at_s or 0.0))
