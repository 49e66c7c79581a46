"""`calc mfu`: one throughput, every convention of utilization."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, Part, shown, table
from shardwise.spec.arch.tensors import active_parameters, parameters
from shardwise.spec.gpu import Gpu
from shardwise.spec.model import Model
from shardwise.step.estimate.mfu import Convention, conventions, headline, training_flops, training_seconds
from shardwise.units import time_text

MEANING = (
    "MFU is model FLOPs over peak; other verbs show causal_half, and executed as HFU; only hardware, executed and 8tp "
    "count repeated work."
)


class Utilization(Struct, frozen=True, kw_only=True):
    counts: Annotated[str, shown("counts")]
    flops_per_token: Annotated[float, shown("GFLOP/token", "GFLOP")]
    flops_per_s_per_gpu: Annotated[float, shown("TFLOP/s/GPU", "TFLOP/s")]
    utilization: Annotated[float, shown("MFU", "share")]


class MfuAnswer(Answer, frozen=True, kw_only=True):
    model: str
    parameters: int
    active_parameters: int
    tokens_per_s_per_gpu: float
    peak_flops_per_s: float
    seq_tokens: int
    conventions: Mapping[str, Utilization]
    gpu: str
    dtype: str
    recompute: str
    run_s: float | None
    """of the whole run, where its tokens and GPUs were given"""

    def parts(self) -> Iterator[Part]:
        against = f"{self.gpu} ({self.peak_flops_per_s / 1e12:,.4g} TFLOP/s {self.dtype})"
        rate = f"{self.tokens_per_s_per_gpu:,.4g} tokens/s/GPU on {against}"
        title = f"{self.model} at {rate}, sequence {self.seq_tokens:,}"
        yield table(title, self.conventions, named="convention", words=2, bars=("MFU",))

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [f"the run takes {time_text(self.run_s)}", *notes] if self.run_s is not None else notes


ANSWERS = (MfuAnswer,)


def mfu_answer(
    model: Model, gpu: Gpu, dtype: str, seq: int, recompute: str, *, tokens_per_s: float | None = None,
    tokens: int | None = None, gpus: int | None = None, seconds: float | None = None, notes: Sequence[str] = (),
) -> MfuAnswer:  # fmt: skip
    """`tokens_per_s`: of each GPU; or what a whole run took."""
    peak, rate = gpu.peak(dtype), _rate(tokens_per_s, tokens, gpus, seconds)
    rows = [*conventions(model, seq, recompute), forward_repeated(model)]
    given = "--tps" if tokens_per_s is not None else "--tokens, --gpus and --time"
    _check_possible(model, seq, rate, peak, given)
    above = [row.key for row in rows if row.utilization(rate, peak) > 1]
    return MfuAnswer(
        model=model.name, parameters=parameters(model), active_parameters=active_parameters(model),
        tokens_per_s_per_gpu=rate, peak_flops_per_s=peak, seq_tokens=seq, gpu=gpu.name, dtype=dtype,
        recompute=recompute, run_s=_run_seconds(rows[0], rate, peak, tokens, gpus),
        conventions={
            row.key: Utilization(counts=row.what, flops_per_token=row.flops_per_token,
                                 flops_per_s_per_gpu=row.flops_per_token * rate,
                                 utilization=row.utilization(rate, peak))
            for row in rows
        },
        notes=[*notes, *(f"'{key}' is above 1: check --tps (per GPU), --on and --dtype" for key in above)],
    )  # fmt: skip


def forward_repeated(model: Model) -> Convention:
    """The rule of thumb for full recompute: 8TP on every parameter a token passes."""
    flops = training_flops(1, float(active_parameters(model)), recompute=True)
    return Convention(key="8tp", what="8TP: 6N, forward repeated", flops_per_token=flops)


def _rate(tps: float | None, tokens: int | None, gpus: int | None, seconds: float | None) -> float:
    """Tokens per second and GPU: given, or from what a whole run took."""
    if tps is not None and seconds is None:
        return _positive("tps", tps)
    if tps is None and tokens is not None and gpus is not None and seconds is not None:
        seconds = _positive("time", seconds)
        return _positive("tokens", tokens) / (_positive("gpus", gpus) * seconds)
    raise ValueError(
        "mfu: the speed is missing or given twice; write --tps 380, or --tokens 300B --gpus 1024 --time '35 d'"
    )


def _check_possible(model: Model, length: int, rate: float, peak: float, given: str) -> None:
    """More than the peak cannot be by the convention that counts least: what a step needs, and half of attention."""
    counted = headline(model, length)
    times = counted.utilization(rate, peak)
    if times > 1:
        raise ValueError(
            f"mfu: {rate:,.4g} tokens/s on each GPU is {times:,.3g} times the peak of {peak / 1e12:,.4g} TFLOP/s; at "
            f"most {rate / times:,.4g} can be: check {given}, then --on and --dtype (a speed is that of one GPU)"
        )


def _run_seconds(row: Convention, rate: float, peak: float, tokens: int | None, gpus: int | None) -> float | None:
    if tokens is None or gpus is None:
        return None
    flops = tokens * row.flops_per_token
    return training_seconds(flops, gpus, peak, row.utilization(rate, peak))


def _positive(name: str, value: float) -> float:
    if not 0 < value < 1e30:
        raise ValueError(f"{name}: {value:g} is out of range; write a number above 0")
    return value
