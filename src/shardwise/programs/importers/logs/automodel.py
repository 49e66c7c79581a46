"""NeMo Automodel: 'step 9 | epoch 0 | loss 0.69 | ... | mem 24.90 GiB | tps 11278.56(1409.82/gpu)'."""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import GIB, NUM, LogForm, by_the_clock, number, one_a_line, positive

_STEP = re.compile(
    rf"\bstep (\d{{1,12}}) \| epoch \d{{1,9}} \| loss (\S{{1,30}}) .{{0,300}}?mem {NUM} GiB \| tps {NUM}\({NUM}/gpu\)"
)


def _step(found: "re.Match[str]", _line: str) -> LoggedStep:
    peak = positive(found[3])
    return LoggedStep(
        step=int(found[1]), loss=number(found[2]), peak_bytes=None if peak is None else peak * GIB,
        memory_is="peak allocated" if peak else "", tokens_per_s_per_gpu=positive(found[5]),
    )  # fmt: skip


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    return by_the_clock(one_a_line(_STEP, _step)(lines))


LOG = LogForm(
    name="automodel", title="NeMo Automodel", marks=("/gpu)",), read=_read,
    caution="its rate counts tokens that bear a label, which differ from step to step: times are those between lines",
)  # fmt: skip
