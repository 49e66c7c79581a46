"""verl: 'step:5 - ... - perf/time_per_step:48.7 - perf/throughput:3283.3 - ...'."""

import re

from shardwise.measured.diagnose.logged import LoggedPhases, LoggedStep
from shardwise.programs.importers.logs._contract import GIB, LogForm, after, first, one_a_line, positive, summed, whole

_STEP = re.compile(r"\bstep:(\d{1,12}) - ")
_WHOLE = after("perf/time_per_step")
_RATE, _PEAK = after("perf/throughput"), after("perf/max_memory_reserved_gb")
_SAVE = after("timing_s/save_checkpoint")
_TIMES = {name: after(f"timing_s/{name}") for name in (
    "gen", "old_log_prob", "ref", "values", "update_actor", "update_critic", "update_weights", "param_sync",
)}  # fmt: skip
_MEAN, _LONGEST = after("response_length/mean"), after("response_length/max")


def _phases(line: str) -> LoggedPhases | None:
    seconds = {name: positive(first(form, line)) for name, form in _TIMES.items()}
    if seconds["gen"] is None and seconds["update_actor"] is None:
        return None
    return LoggedPhases(
        rollout_s=seconds["gen"], log_probs_s=summed(seconds["old_log_prob"], seconds["ref"], seconds["values"]),
        update_s=summed(seconds["update_actor"], seconds["update_critic"]),
        sync_s=summed(seconds["update_weights"], seconds["param_sync"]),
        answer_tokens=positive(first(_MEAN, line)), longest_tokens=positive(first(_LONGEST, line)),
    )  # fmt: skip


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    peak, saved = positive(first(_PEAK, line)), positive(first(_SAVE, line))
    return LoggedStep(
        step=whole(found[1]), seconds=positive(first(_WHOLE, line)), tokens_per_s_per_gpu=positive(first(_RATE, line)),
        peak_bytes=None if peak is None else peak * GIB, memory_is="peak reserved" if peak else "", save_s=saved,
        phases=_phases(line),
    )  # fmt: skip


LOG = LogForm(
    name="verl", title="verl", marks=("perf/time_per_step:",), read=one_a_line(_STEP, _step),
    caution="a step of verl holds rollout and scoring too: it is more than a training step",
)  # fmt: skip
