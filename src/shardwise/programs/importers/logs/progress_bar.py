"""Bars of tqdm, as Lightning, accelerate and many a loop draw them: 'Epoch 0: 10%|# | 100/1000 [00:30<04:30, 3.3it/s]'.

The rate in a bar is smoothed over the last steps; what stands before it, the time since the start, is exact to a
second. A bar that advances gives a step's time by the difference.
"""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import LogForm, after, first, number, positive

_BAR = re.compile(
    r"\|\s*(\d{1,12})/(\d{1,12})\s*\[(?:(\d{1,4}):)?(\d{1,2}):(\d\d)<[^,\]]{1,20},\s*([0-9.]{1,20})\s*(it/s|s/it)"
)
_OTHER = re.compile(r"Validat|Testing|Sanity|Evaluat|Download|Map|Tokeniz|Loading|Generating|Predicting", re.IGNORECASE)
_LOSS = after("loss")
COARSE_S = 20.0
"""of time between two bars, at least: their clock counts whole seconds"""

UNLIKELY = 20.0
"""times faster than the mean since the start: the bar was drawn again after a pause that it did not count"""


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    found: list[LoggedStep] = []
    last: tuple[int, float] | None = None
    for place, line in enumerate(lines):
        bar = _BAR.search(line)
        rate = None if bar is None else positive(bar[6])
        if bar is None or rate is None or _OTHER.search(line[: bar.start()]):
            continue
        step, elapsed = int(bar[1]), 3600.0 * int(bar[3] or 0) + 60.0 * int(bar[4]) + int(bar[5])
        smoothed = 1.0 / rate if bar[7] == "it/s" else rate
        if (last is not None and step == last[0]) or smoothed * UNLIKELY < elapsed / max(step, 1):
            continue
        if last is not None and step > last[0] and elapsed - last[1] >= COARSE_S:
            smoothed = (elapsed - last[1]) / (step - last[0])
        found.append(LoggedStep(step=step, line=place, seconds=smoothed, loss=number(first(_LOSS, line))))
        last = (step, elapsed)
    return found


LOG = LogForm(
    name="progress_bar", title="Lightning or another progress bar", marks=("it/s", "s/it"), read=_read,
    caution="a progress bar's rate is smoothed over the last steps: a single slow step shows as several",
)  # fmt: skip
