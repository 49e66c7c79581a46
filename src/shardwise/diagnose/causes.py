"""What a slow step loses time to: one cause, its seconds, where, and by what it was told."""

from msgspec import Struct

CAUSES: dict[str, str] = {
    "compute": "kernels",
    "clocks": "low clocks",
    "tp_comm": "tensor-parallel collectives",
    "cp_comm": "context-parallel exchange",
    "ep_comm": "expert exchange",
    "fsdp_comm": "ZeRO 3 gathers and scatters",
    "grad_comm": "gradient reduction",
    "param_comm": "parameter gather",
    "bubble": "pipeline bubble and transfers",
    "comm": "collectives, axis unknown",
    "wait": "waiting for slower ranks",
    "straggler": "one slow rank",
    "host": "host launches late",
    "data": "waiting for data",
    "checkpoint": "checkpoints",
    "evaluation": "evaluations",
    "stalls": "stalls at a fixed interval",
    "spikes": "single slow steps",
    "drift": "steps growing slower",
    "shift": "slower since one moment",
    "jitter": "steps that vary",
    "copy": "copies to and from the host",
    "idle": "GPU idle, reason unknown",
    "restart": "work done again",
    "level": "the level of all steps",
}
"""code -> in words; of communication what is exposed"""


class Cause(Struct, frozen=True, kw_only=True):
    code: str
    seconds: float
    """of an average step; with a prediction, what is beyond it is `excess_s`"""
    predicted_s: float | None = None
    """None where nothing predicts it"""
    where: str = ""
    """rank, stage, group of ranks or step"""
    evidence: str = ""
    """by what it was told"""

    @property
    def excess_s(self) -> float:
        return self.seconds - (self.predicted_s or 0.0)

    @property
    def what(self) -> str:
        return CAUSES[self.code]


def ranked(causes: "list[Cause] | tuple[Cause, ...]") -> tuple[Cause, ...]:
    """The largest loss first."""
    return tuple(sorted(causes, key=lambda cause: -cause.excess_s))
