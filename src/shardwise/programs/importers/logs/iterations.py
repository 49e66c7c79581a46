"""litgpt and nanoGPT: 'iter 10: loss 3.2, time 893.76ms' and 'iter 8 step 2: ... iter time: 121 ms (step)'.

litgpt times each micro-batch: those up to the one that ends with the optimizer's step are one step.
"""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import NUM, LogForm, clock, first, number, one_a_line, positive

_NANO = re.compile(rf"\biter (\d{{1,12}}): loss \S{{1,30}}, time {NUM}\s?ms")
_LIT = re.compile(rf"\biter (\d{{1,12}})\b.{{0,400}}?\biter time: {NUM}\s?ms(\s?\((?:optimizer\.|opt\.)?step\))?")
_LOSS = re.compile(r"\bloss(?: train(?: \(curr\))?:)? ([-+0-9.eE]{1,30})")


def _nano(found: "re.Match[str]", line: str) -> LoggedStep:
    milliseconds = positive(found[2])
    return LoggedStep(step=int(found[1]), loss=number(first(_LOSS, line)),
                      seconds=None if milliseconds is None else milliseconds * 1e-3)  # fmt: skip


def _lit(lines: Sequence[str]) -> list[LoggedStep]:
    found, step_s = list[LoggedStep](), 0.0
    for place, line in enumerate(lines):
        each = _LIT.search(line)
        milliseconds = None if each is None else positive(each[2])
        if each is None or milliseconds is None:
            continue
        step_s += milliseconds * 1e-3
        if each[3]:
            found.append(LoggedStep(line=place, at_s=clock(line), seconds=step_s, loss=number(first(_LOSS, line))))
            step_s = 0.0
    return found


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    return _lit(lines) or one_a_line(_NANO, _nano)(lines)


LOG = LogForm(name="iterations", title="litgpt or nanoGPT", marks=("iter time: ", ", time "), read=_read)
