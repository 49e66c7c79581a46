"""Training state of a model: what has to be held somewhere before the first activation, and on how many GPUs.

Texts count different bytes per parameter, so each count says which: weights and Adam's two moments (10 with bf16
weights) are what has to last from step to step where the weights themselves are updated; a mixed-precision recipe adds
gradients and a full-precision copy.
"""

from math import ceil

from msgspec import Struct

from shardwise.arch.tensors import parameters
from shardwise.estimate.memory import unfactored_bytes
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import PRECISIONS, Job, Precision
from shardwise.spec.model import Model


class TrainingState(Struct, frozen=True, kw_only=True):
    recipe: str
    parameters: int
    bytes_per_parameter: dict[str, float]
    """by what is held"""

    @property
    def total(self) -> float:
        return self.parameters * sum(self.bytes_per_parameter.values())

    def gpus_for(self, gpu: Gpu) -> int:
        """The fewest that hold it with nothing else on them."""
        return max(ceil(self.total / gpu.memory_bytes), 1)

    def __str__(self) -> str:
        each = ", ".join(f"{what} {size:g}" for what, size in self.bytes_per_parameter.items() if size)
        return f"{self.total / 1e9:,.4g} GB, {sum(self.bytes_per_parameter.values()):g} bytes a parameter ({each})"


def state_of(model: Model, job: Job) -> TrainingState:
    """All that the job's recipe keeps of each parameter."""
    precision = job.precision
    return TrainingState(
        recipe=precision.name, parameters=parameters(model),
        bytes_per_parameter={
            "weights": precision.param_bytes, "gradients": precision.grad_bytes, "copy": precision.master_bytes,
            "moments": unfactored_bytes(job) - precision.master_bytes, "cast": precision.cast_bytes,
        },
    )  # fmt: skip


def lasting_state(model: Model, precision: Precision = PRECISIONS["bf16"]) -> TrainingState:
    """Weights and Adam's moments: the least that lasts from step to step."""
    return TrainingState(
        recipe="weights and Adam's moments", parameters=parameters(model),
        bytes_per_parameter={"weights": precision.param_bytes, "moments": 2.0 * precision.moment_bytes},
    )  # fmt: skip
