"""Lines by which programs, launchers, drivers and kernels say that something broke, and what each means."""

import re
from dataclasses import dataclass

SIGNS: tuple[tuple[str, str], ...] = (
    ("gpu_error", r"NVRM: Xid \([^)]{0,40}\): (?:48|62|63|64|74|79|94|95|119|120|140)\b|SXid \(|"
                  r"CUDA error: (?:uncorrectable ECC|device-side|an illegal memory)|fallen off the bus"),
    ("out_of_memory", r"CUDA out of memory|OutOfMemoryError|Out of memory: Killed process|oom-kill|"
                      r"DefaultCPUAllocator: can't allocate memory"),
    ("disk_full", r"No space left on device|Disk quota exceeded"),
    ("not_finite", r"(?:the )?(?:loss|norm of the gradient) is (?:nan|inf)|found NaN in|loss is NaN|NaN or Inf found"),
    ("killed", r"was killed by signal|Signal 9 \(SIGKILL\) received|exitcode\s*:\s*-(?:9|11|7|6)\b|Segmentation fault"),
    ("stopped", r"stopped after step \d{1,12}: SIG(?:TERM|USR1)|CANCELLED AT|DUE TO PREEMPTION|DUE TO TIME LIMIT"),
    ("damaged_checkpoint", r"step-\d{8,12} is damaged|PytorchStreamReader failed|invalid header or archive"),
    ("unsaved", r"a checkpoint could not be written|checkpoint of step \d{1,12}: "),
    ("silent", r"no sign of rank|Watchdog caught collective operation timeout|Timed out waiting \d{1,9}ms"),
    ("crash", r"Traceback \(most recent call last\)|ChildFailedError"),
    ("lost_peer", r"Connection (?:closed|reset) by peer|Broken pipe"),
)  # fmt: skip
"""(code, form), the more telling first: one line counts once"""
_FORMS = tuple((code, re.compile(form, re.I)) for code, form in SIGNS)
_RANK = re.compile(r"\[rank\s?(\d{1,6})\]|\brank:?\s*(\d{1,6})\b", re.I)
_SILENT = re.compile(r"no sign of rank (\d{1,6})")
LONGEST = 4000


@dataclass(frozen=True)
class FailureLine:
    code: str
    text: str
    rank: int | None
    line: int
    at_s: float | None


def sign_of(line: str) -> tuple[str, int | None] | None:
    """(code, rank that is meant) of one line."""
    line = line[:LONGEST]
    for code, form in _FORMS:
        if form.search(line):
            silent = _SILENT.search(line)
            said = silent or _RANK.search(line)
            return code, int(next(each for each in said.groups() if each)) if said else None
    return None
