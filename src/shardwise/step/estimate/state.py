"""Training state of a model: what has to be held somewhere before the first activation, and on how many GPUs.

One account, of what a job's recipe and optimizer keep of each parameter; texts count different parts of it, so each
count says which bytes it has. With bf16 weights and AdamW: 18 while training, 12 of these in a checkpoint, and 10 where
weights and moments alone are meant.
"""

from math import ceil

from msgspec import Struct

from shardwise.spec.arch.tensors import parameters
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import PRECISIONS, Job, Precision
from shardwise.spec.model import Model
from shardwise.work.updates import kept_bytes


class TrainingState(Struct, frozen=True, kw_only=True):
    recipe: str
    parameters: int
    bytes_per_parameter: dict[str, float]
    """by what is held"""

    @property
    def each(self) -> float:
        """Bytes of a parameter."""
        return sum(self.bytes_per_parameter.values())

    @property
    def total(self) -> float:
        return self.parameters * self.each

    @property
    def counted(self) -> str:
        """Which bytes."""
        return ", ".join(f"{what} {size:.4g}" for what, size in self.bytes_per_parameter.items() if size)

    def gpus_for(self, gpu: Gpu) -> int:
        """The fewest that hold it with nothing else on them."""
        return max(ceil(self.total / gpu.memory_bytes), 1)

    def only(self, recipe: str, *kinds: str) -> "TrainingState":
        chosen = {kind: self.bytes_per_parameter[kind] for kind in kinds}
        return TrainingState(recipe=recipe, parameters=self.parameters, bytes_per_parameter=chosen)

    def __str__(self) -> str:
        return f"{self.total / 1e9:,.4g} GB, {self.each:.4g} bytes a parameter ({self.counted})"


def element_bytes(job: Job, moments: float | None = None) -> dict[str, float]:
    """All that is kept of one parameter; `moments`: the optimizer's, where they are not the same for all."""
    precision = job.precision
    if moments is None:
        moments = job.optimizer.rule.element_bytes(precision.moment_bytes)
    return {
        "weights": precision.param_bytes, "gradients": precision.grad_bytes, "copy": precision.master_bytes,
        "moments": moments, "cast": precision.cast_bytes,
    }  # fmt: skip


def state_of(model: Model, job: Job) -> TrainingState:
    """All that the job's recipe keeps of each parameter."""
    count = parameters(model)
    moments = kept_bytes(model, job) / count if job.optimizer.rule.by_shape else None
    return TrainingState(recipe=job.precision.name, parameters=count, bytes_per_parameter=element_bytes(job, moments))


def lasting_state(model: Model, precision: Precision = PRECISIONS["bf16"]) -> TrainingState:
    """Weights and Adam's moments: the least that lasts from step to step."""
    whole = state_of(model, Job(seq=1, global_batch=1, precision=precision))
    return whole.only("weights and Adam's moments", "weights", "moments")


def saved_state(model: Model, job: Job) -> TrainingState:
    """A checkpoint: weights in the widest precision kept, and the optimizer's moments. The narrow copy that GEMMs read
    is made from the wide one, and gradients do not outlive a step."""
    whole = state_of(model, job)
    widest = max("copy", "weights", key=lambda kind: whole.bytes_per_parameter[kind])
    return whole.only("a checkpoint", widest, "moments")


def replica_bytes(count: float, job: Job) -> float:
    """What a GPU that holds all of a model keeps before any activation."""
    held = element_bytes(job)
    return count * (held["weights"] + held["gradients"] + held["copy"] + held["moments"])
