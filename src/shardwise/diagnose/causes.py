"""What a slow step loses time to: one cause, its seconds, where, and by what it was told."""

from msgspec import Struct

CAUSES: dict[str, str] = {
    "compute": "kernels",
    "tp_comm": "tensor-parallel collectives, exposed",
    "cp_comm": "context-parallel exchange, exposed",
    "ep_comm": "expert exchange, exposed",
    "fsdp_comm": "parameters gathered and gradients scattered (ZeRO 3), exposed",
    "grad_comm": "gradients reduced over replicas, exposed",
    "param_comm": "parameters gathered after the update, exposed",
    "bubble": "pipeline: waiting for other stages, and transfers",
    "comm": "collectives of an unknown axis, exposed",
    "wait": "waiting for slower ranks inside collectives",
    "straggler": "one rank that is slower than the others",
    "host": "the GPU waits for the host to launch",
    "data": "the GPU waits for the next batch",
    "checkpoint": "checkpoints",
    "evaluation": "evaluations",
    "stalls": "stalls at a fixed interval",
    "spikes": "single slow steps",
    "drift": "steps that become slower",
    "shift": "slower since one moment",
    "jitter": "steps that vary",
    "copy": "copies to and from the host, exposed",
    "idle": "the GPU idle, for no reason the trace tells",
    "outside": "between the steps",
    "restart": "work done again after a restart",
    "level": "every step slower than predicted",
}
"""code -> in words"""


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
