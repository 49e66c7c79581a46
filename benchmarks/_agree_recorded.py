"""What the real training program sends, recorded rank by rank without a network, against the list of messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from _agree_cases import Sample, cases
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings, checked
from shardwise.run.runtime.verify import fake_verify
from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.software import stack_of

MOST_GPUS, MOST_STAGES, MOST_CHUNKS = 32, 4, 2
TRIED = 20
"""drawn cases for each that the program runs, before looking on is given up"""


@dataclass(frozen=True)
class RecordedSample:
    name: str
    order: TrainingOrder


def recorded_samples(number: int, seed: int = 0) -> Iterator[RecordedSample]:
    """The policies of the first cases that the program can run, on models as small as they allow."""
    found = 0
    for tried, sample in zip(count(), cases(TRIED * number, seed)):
        order = _order(sample, tried)
        if order is not None:
            found += 1
            yield RecordedSample(f"{order.task.model.name}, {sample.policy}", order)
        if found == number:
            return


def _order(sample: Sample, seed: int) -> TrainingOrder | None:
    policy = sample.policy
    if policy.gpus > MOST_GPUS or policy.pp > MOST_STAGES or policy.vpp > MOST_CHUNKS:
        return None
    pieces = policy.pp * policy.vpp
    model = model_from_shape(
        "experts" if policy.ep > 1 else "dense", layers=pieces + seed % 2, hidden=128, heads=16,
        kv_heads=(16, 4, 1)[seed % 3], ffn=256, glu=True, vocab=256, tied=seed % 4 == 0,
        **({"experts": policy.ep, "top_k": 2, "expert_ffn": 64} if policy.ep > 1 else {}),
    )  # fmt: skip
    precision = "fsdp-mixed-reduce32" if policy.zero == 3 and policy.dp * policy.cp > 1 else "bf16"
    job = Job(
        seq=2 * policy.cp * policy.tp, global_batch=2 * policy.pp * policy.dp * policy.micro_batch,
        precision=PRECISIONS[precision],
    )  # fmt: skip
    routed = any(kind.experts for kind in model.kinds)
    task = Task(model=model, job=job, policy=policy, stack=stack_of("shardwise"), even_routing=routed)
    try:
        checked(task)
    except ValueError:
        return None
    return TrainingOrder(task=task, settings=TrainingSettings(steps=2))


def recorded_gap(sample: RecordedSample) -> tuple[float, str]:
    """Largest relative difference of bytes, by stage, axis, operation and phase, and where it is."""
    result, _ = fake_verify(sample.order)
    worst = (0.0, "")
    for row in result.messages:
        most = max(row.predicted_bytes, row.measured_bytes)
        gap = abs(row.predicted_bytes - row.measured_bytes) / most if most else 0.0
        worst = max(worst, (gap, f"{row.axis} {row.op} {row.phase} of stage {row.stage}, {sample.name}"))
    return worst
