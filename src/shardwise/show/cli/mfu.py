"""`shardwise calc mfu`: one throughput, every convention of utilization."""

from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.question.job import sequence_of
from shardwise.show.cli import _notes
from shardwise.show.cli._options import Explain, Json, Seq
from shardwise.show.cli._output import print_json, print_notes, print_table
from shardwise.show.cli._target import gpu_from, known_dtype, missing_dtype
from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import active_parameters, parameters
from shardwise.spec.model import Model
from shardwise.step.estimate.mfu import Convention, conventions, headline, training_flops, training_seconds
from shardwise.units import count_of, seconds_of, time_text


def mfu(
    model: Annotated[str, Parameter(help="Catalog name, or a path to a Hugging Face config.json.")],
    /,
    *,
    on: Annotated[str, Parameter(help="GPU (h100) or cluster (dgx-h100:1024) whose peak counts.")],
    tps: Annotated[
        float | None, Parameter(help="Tokens per second and GPU. Or give --tokens, --gpus and --time.")
    ] = None,
    tokens: Annotated[str | None, Parameter(help="Tokens trained on, such as 300B.")] = None,
    gpus: Annotated[int | None, Parameter(help="GPUs that trained.")] = None,
    time: Annotated[str | None, Parameter(help="How long, such as '35 d'.")] = None,
    seq: Seq = None,
    recompute: Annotated[str, Parameter(help="none, selective or full: recompute in the backward pass.")] = "none",
    dtype: Annotated[str, Parameter(help="dtype of the peak.")] = "bf16",
    explain: Explain = False,
    json: Json = False,
) -> None:
    """Utilization of a run by each convention in use, side by side."""
    shape, gpu = model_of(model), gpu_from(on)
    trained = None if tokens is None else count_of(tokens, "tokens")
    rate = _rate(tps, trained, gpus, time)
    notes: list[str] = []
    length = sequence_of(shape, seq, notes)
    peak = gpu.peak(known_dtype(dtype))
    rows = [*conventions(shape, length, recompute), _forward_repeated(shape)]
    _check_possible(shape, length, rate, peak, "--tps" if tps is not None else "--tokens, --gpus and --time")
    seconds = _run_seconds(rows[0], rate, peak, trained, gpus)
    notes += ["extra prediction layers (MTP) are not counted, as in published sizes"] if shape.mtp_layers else []
    notes += [
        *missing_dtype(gpu, dtype),
        "MFU is model FLOPs over peak; other verbs show causal_half, and executed as HFU; only hardware, executed and "
        "8tp count repeated work.",
        *(_notes.on_model(shape.name) if explain else ()),
    ]
    notes += [
        f"'{row.key}' is above 1: check --tps (per GPU), --on and --dtype"
        for row in rows
        if row.utilization(rate, peak) > 1
    ]
    if json:
        about = {"gpu": gpu.name, "dtype": dtype, "recompute": recompute, "run_s": seconds}
        print_json(_data(shape, rows, rate, peak, length) | about | {"notes": notes})
        return
    against = f"{gpu.name} ({peak / 1e12:,.4g} TFLOP/s {dtype})"
    print_table(
        f"{shape.name} at {rate:,.4g} tokens/s/GPU on {against}, sequence {length:,}",
        ["convention", "counts", "GFLOP/token", "TFLOP/s/GPU", "MFU"],
        (
            [
                r.key,
                r.what,
                r.flops_per_token / 1e9,
                r.flops_per_token * rate / 1e12,
                f"{r.utilization(rate, peak):.3f}",
            ]
            for r in rows
        ),
        words=2,
        bars=("MFU",),
    )
    if seconds is not None:
        notes.insert(0, f"{trained:,} tokens on {gpus:,} GPUs take {time_text(seconds)}")
    print_notes(notes)


def _forward_repeated(model: Model) -> Convention:
    """The rule of thumb for full recompute: 8TP on every parameter a token passes."""
    flops = training_flops(1, float(active_parameters(model)), recompute=True)
    return Convention(key="8tp", what="8TP: 6N, forward repeated", flops_per_token=flops)


def _rate(tps: float | None, tokens: int | None, gpus: int | None, time: str | None) -> float:
    """Tokens per second and GPU: given, or from what a whole run took."""
    if tps is not None and time is None:
        return _positive("tps", tps)
    if tps is None and tokens is not None and gpus is not None and time is not None:
        seconds = _positive("time", seconds_of(time, "time"))
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


def _data(model: Model, rows: list[Convention], rate: float, peak: float, seq: int) -> dict[str, Any]:
    return {
        "model": model.name, "parameters": parameters(model), "active_parameters": active_parameters(model),
        "tokens_per_s_per_gpu": rate, "peak_flops_per_s": peak, "seq_tokens": seq,
        "conventions": {
            row.key: {
                "flops_per_token": row.flops_per_token, "flops_per_s_per_gpu": row.flops_per_token * rate,
                "utilization": row.utilization(rate, peak), "counts": row.what,
            } for row in rows
        },
    }  # fmt: skip
