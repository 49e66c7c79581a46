"""NeMo-RL: 'Step 5/100', then '• Total step time: 66.55s' and a line for each phase."""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedPhases, LoggedStep
from shardwise.programs.importers.logs._contract import NUM, LogForm, clock, number, positive, summed, whole

_HEAD = re.compile(r"=\s{0,4}Step (\d{1,9})/\d{1,9}\s{0,4}=")
_PHASE = re.compile(rf"^\W{{0,12}}([a-z_/]{{3,60}}):\s{{0,4}}{NUM}s\b")
_TOTAL = re.compile(rf"Total step time:\s{{0,4}}{NUM}s\b")
_LENGTH = re.compile(rf"(?i)mean (?:generation|total tokens|response) length:\s{{0,4}}{NUM}")
_LOSS = re.compile(r"^\W{0,12}Loss:\s{0,4}(-?[0-9.eE+-]{1,20})")
NEAR = 200
"""lines that a step's report is long at most"""
ROLLOUT = ("exposed_generation", "generation")
LOG_PROBS = ("policy_and_reference_logprobs", "policy_logprobs", "reference_logprobs")
SYNC = ("weight_sync", "prepare_for_generation/transfer_and_update_weights", "prepare_for_generation/total",
        "prepare_for_generation")  # fmt: skip


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    ends = [(place, match[1]) for place, line in enumerate(lines) if (match := _TOTAL.search(line))]
    heads = [(place, match[1]) for place, line in enumerate(lines) if (match := _HEAD.search(line))]
    found = list[LoggedStep]()
    for number_, (place, total) in enumerate(ends):
        before = ends[number_ - 1][0] if number_ else -1
        after = ends[number_ + 1][0] if number_ + 1 < len(ends) else len(lines)
        head = next((step for at, step in reversed(heads) if before < at < place), None)
        above = lines[max(before + 1, place - NEAR) : place]
        times: dict[str, float] = {}
        for line in lines[place + 1 : min(place + NEAR, after)]:
            if match := _PHASE.match(line):
                times.setdefault(match[1], positive(match[2]) or 0.0)
        lengths = [match[1] for line in above if (match := _LENGTH.search(line))]
        losses = [match[1] for line in above if (match := _LOSS.match(line))]
        found.append(LoggedStep(
            step=whole(head) if head else number_ + 1, line=place, at_s=clock(lines[place]), seconds=positive(total),
            loss=number(losses[-1]) if losses else None, phases=_phases(times, lengths[-1] if lengths else None),
        ))  # fmt: skip
    return found


def _phases(times: dict[str, float], length: str | None) -> LoggedPhases | None:
    if not times:
        return None
    first = [next((times[name] for name in names if name in times), None) for names in (ROLLOUT, SYNC)]
    passes = times.get(LOG_PROBS[0])
    return LoggedPhases(
        rollout_s=first[0], sync_s=first[1], update_s=times.get("policy_training"),
        log_probs_s=passes if passes is not None else summed(*(times.get(name) for name in LOG_PROBS[1:])),
        answer_tokens=positive(length),
    )  # fmt: skip


LOG = LogForm(
    name="nemo_rl", title="NeMo-RL", marks=("Total step time:",), read=_read,
    caution="a step of NeMo-RL holds rollout and log-probabilities too; with generation of its own GPUs the rollout is "
    "what training waited for",
)  # fmt: skip
