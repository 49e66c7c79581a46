"""The lines of `shardwise models NAME` on training state: how many bytes, which ones, on how many GPUs."""

from typing import Any

from shardwise.cli._output import Cell
from shardwise.estimate.state import TrainingState, lasting_state, state_of
from shardwise.question.job import usual_precision
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import Job, precision_of
from shardwise.spec.model import Model


def _states(model: Model) -> list[TrainingState]:
    """The least that lasts from step to step, and all that the usual recipe holds."""
    usual = precision_of(usual_precision(model))
    return [lasting_state(model, usual), state_of(model, Job(seq=1, global_batch=1, precision=usual))]


def state_facts(model: Model, gpu: Gpu) -> list[tuple[str, Cell]]:
    lasting, whole = _states(model)
    return [
        ("state that lasts", f"{lasting}: {_gpus(lasting, gpu)}"),
        ("state while training", f"{whole}, in {whole.recipe}: {_gpus(whole, gpu)}; activations come on top"),
    ]


def _gpus(state: TrainingState, gpu: Gpu) -> str:
    count = state.gpus_for(gpu)
    return f"{count:,} {gpu.name} at least"


def state_data(model: Model, gpu: Gpu) -> list[dict[str, Any]]:
    return [
        {
            "recipe": state.recipe, "bytes_per_parameter": state.bytes_per_parameter, "total_bytes": state.total,
            "gpu": gpu.name, "gpus": state.gpus_for(gpu),
        }
        for state in _states(model)
    ]  # fmt: skip
