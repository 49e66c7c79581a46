"""What each pipeline schedule asks of the stages, chunks and micro-batches, for scalars and columns alike.

The orders themselves live with the schedules; these needs are here because they decide whether a policy is legal.
"""

from typing import Any, Literal

import numpy as np
from msgspec import Struct

Chunks = Literal["one", "many", "two"]


class Needs(Struct, frozen=True, kw_only=True):
    chunks: Chunks = "one"
    """chunks of layers per stage (vpp): 1, at least 2, exactly 2; more than one only makes sense with pp above 1"""
    stages: Literal["any", "single", "even"] = "any"
    multiple_of_pp: bool = False
    """micro-batches come in rounds of pp"""
    even: bool = False
    """micro-batches are dealt out to two directions"""
    least: int = 0
    """micro-batches are at least this many times pp"""

    def met(self, pp: Any, vpp: Any, micro_batches: Any) -> Any:
        if self.chunks == "one":
            ok = np.equal(vpp, 1)
        else:
            ok = (np.equal(vpp, 2) if self.chunks == "two" else np.greater(vpp, 1)) & np.greater(pp, 1)
        if self.stages != "any":
            ok = ok & (np.equal(pp, 1) if self.stages == "single" else np.equal(pp % 2, 0))
        if self.multiple_of_pp:
            ok = ok & np.equal(micro_batches % pp, 0)
        if self.even:
            ok = ok & np.equal(micro_batches % 2, 0)
        return ok & np.greater_equal(micro_batches, self.least * pp) if self.least else ok

    def text(self) -> str:
        vpp = {"one": "vpp 1", "many": "vpp above 1 and pp above 1", "two": "vpp 2 and pp above 1"}
        asked = [vpp[self.chunks]]
        if self.stages != "any":
            asked.append("pp 1" if self.stages == "single" else "an even pp")
        if self.multiple_of_pp:
            asked.append("micro-batches in multiples of pp")
        if self.even:
            asked.append("an even number of micro-batches")
        if self.least:
            asked.append(f"at least {self.least} x pp micro-batches" if self.least > 1 else "at least pp micro-batches")
        return ", ".join(asked)


NEEDS: dict[str, Needs] = {
    "1f1b": Needs(),
    "interleaved": Needs(chunks="many", multiple_of_pp=True),
    "gpipe": Needs(),
    "none": Needs(stages="single"),
    "looped_bfs": Needs(chunks="many"),
    "zero_bubble_h1": Needs(),
    "zb_v": Needs(chunks="two"),
    "dualpipe": Needs(stages="even", even=True, least=2),
    "dualpipe_v": Needs(chunks="two", least=2),
    "overlapped": Needs(),
    "interleaved_zero_bubble": Needs(chunks="many", multiple_of_pp=True),
}


def refusal(schedule: str, pp: int, vpp: int, micro_batches: int) -> str:
    """Why a schedule cannot run, or nothing."""
    needs = NEEDS[schedule]
    if needs.met(pp, vpp, micro_batches):
        return ""
    others = [repr(name) for name in NEEDS if pp > 1 and NEEDS[name].met(pp, vpp, micro_batches)]
    return (
        f"schedule {schedule!r} with pp {pp}, vpp {vpp}, {micro_batches} micro-batches: it needs {needs.text()}"
        f"{'; or take ' + ' or '.join(others[:2]) if others else ''}"
    )
