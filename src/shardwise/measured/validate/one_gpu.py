"""Whole training steps of plain PyTorch decoders on one GPU: kernels and saved tensors alone decide."""

from pathlib import Path

from msgspec.structs import replace

from shardwise.cost.calibrate.profile import Profile
from shardwise.measured.validate.predict import Prediction
from shardwise.measured.validate.table import MeasuredRow, read_table
from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_from
from shardwise.spec.model import Model
from shardwise.spec.policy import RECOMPUTE, Policies, Policy
from shardwise.spec.software import Stack, known_stack
from shardwise.step.estimate.band import ONE_GPU, band_of
from shardwise.step.estimate.causes import causes_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import Case, case_of

GPU = "h200"
SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq", "micro_batch")
NEEDED = ("name", *SHAPE, "glu", "recompute", "precision", "compiled")
TELLS = ("step_ms", "peak_alloc_gib", *SHAPE)
"""columns by which such a table is recognised"""
SOURCE = "one-gpu"


def is_one_gpu(columns: tuple[str, ...]) -> bool:
    return set(TELLS) <= set(columns)


def one_gpu_predictions(path: Path, stack: str = "auto", profile: Profile | None = None) -> list[Prediction]:
    return [_predict(row, stack, profile) for row in read_table(path, NEEDED)]


def one_gpu_case(row: MeasuredRow, stack_name: str = "auto", profile: Profile | None = None) -> tuple[Case, Policy]:
    shape = {column: _size(row, column) for column in SHAPE}
    micro, accumulation = shape["micro_batch"], row.whole("accum") or 1
    recipe = row.word("precision") or "autocast"
    job = Job(seq=shape["seq"], global_batch=micro * accumulation, precision=precision_of(recipe))
    policy = Policy(zero=0, sp=False, micro_batch=micro, recompute=_recompute(row))
    return case_of(_model(row, shape), cluster_from(GPU, 1, 1), job, _stack(row, stack_name), profile), policy


def _predict(row: MeasuredRow, stack_name: str, profile: Profile | None) -> Prediction:
    case, policy = one_gpu_case(row, stack_name, profile)
    result = estimate(case, Policies.of([policy]), every_stage=True)
    step_s, peak = float(result.times.step_s[0]), float(result.memory.peak[0])
    return Prediction(
        _as_measured(row, case.job),
        "ok" if result.fits[0] else "oom",
        f"plain PyTorch on one {GPU}, stack {case.stack.name}",
        step_s=step_s,
        tokens_per_s_per_gpu=case.job.step_tokens / step_s,
        peak_bytes=peak,
        policy=policy,
        stack=case.stack.name,
        causes=causes_of(case, result.work, result.times, ())[0],
        band=band_of(case, ONE_GPU),
    )


def _stack(row: MeasuredRow, name: str) -> Stack:
    """A compiler joins what a program states apart, so `fused` matters to the other one alone."""
    if name != "auto":
        return known_stack(name)
    if row.word("compiled") == "1":
        return known_stack("torch-eager@compiled")
    apart = row.word("fused") == "0" and row.word("glu") == "1"
    return known_stack("torch-eager").changed(separate_projections=apart)


def _size(row: MeasuredRow, column: str) -> int:
    value = row.whole(column)
    if not value:
        raise ValueError(f"row {row.row}: {column} is {row.word(column)!r}; write a whole number of 1 or more")
    return value


def _recompute(row: MeasuredRow) -> str:
    stated = row.word("recompute") or "none"
    if stated not in RECOMPUTE:
        raise ValueError(f"row {row.row}: recompute is {stated!r}; write one of {', '.join(RECOMPUTE)}")
    return stated


def _model(row: MeasuredRow, shape: dict[str, int]) -> Model:
    """These decoders have an untied head, no dropout, and no rotary embedding (learned positions when not gated).

    With `moe_experts`, every layer has that many experts of width `ffn`, and a token visits `moe_topk` of them.
    """
    experts = row.whole("moe_experts") or None
    if experts is not None and not 1 <= (row.whole("moe_topk") or 0) <= experts:
        stated = row.word("moe_topk")
        raise ValueError(f"row {row.row}: moe_topk is {stated!r}; write a whole number from 1 to {experts}")
    model = model_from_shape(
        row.word("name"), shape["layers"], shape["hidden"], shape["heads"], shape["kv_heads"], shape["ffn"],
        row.word("glu") == "1", shape["vocab"], tied=False, positions=shape["seq"],
        experts=experts, top_k=row.whole("moe_topk") if experts else None,
    )  # fmt: skip
    return replace(model, dropout=False, rotary=False)


def _as_measured(row: MeasuredRow, job: Job) -> MeasuredRow:
    """The row under the column names the scores read."""
    step_ms = row.number("step_ms")
    text = {
        "source": SOURCE, "model": row.word("name"), "gpu": GPU, "gpus": "1", "seq": str(job.seq),
        "global_batch": str(job.global_batch), "step_seconds": str(step_ms / 1e3) if step_ms else "",
        "peak_mem_gb": row.word("peak_alloc_gib"),
    }  # fmt: skip
    return MeasuredRow(row=row.row, text=text)
