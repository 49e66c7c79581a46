"""`shardwise calc roofline`: how much work it takes to hide memory and network."""

from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.answers.roofline import RooflineAnswer, roofline_answer
from shardwise.cost.calibrate.overlay import as_measured
from shardwise.show.cli import _notes
from shardwise.show.cli._options import Explain, Json, ProfileFile, profile_or_none, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._target import known_dtype, missing_dtype, target_of
from shardwise.spec.cluster import Cluster
from shardwise.step.estimate.roofline import critical_tokens, tensor_parallel_ways
from shardwise.units import in_full, sequence_tokens

FFN = 16_000
"""width of the feed-forward in a widely read exercise"""


def roofline(
    target: Annotated[
        str, Parameter(name="--on", help="A GPU (h100) or a cluster (dgx-h100:1024, 8xh100, a YAML file).")
    ],
    *,
    dtype: Annotated[str, Parameter(help="dtype of the GEMMs: tf32, fp16, bf16, fp8, fp4.")] = "bf16",
    tp: Annotated[int, Parameter(help="Tensor parallel, on neighbouring GPUs."), within(1)] = 1,
    ep: Annotated[int, Parameter(help="Expert parallel, on neighbouring GPUs."), within(1)] = 1,
    pp: Annotated[int, Parameter(help="Pipeline stages, over blocks of GPUs further out.")] = 1,
    inner: Annotated[
        int, Parameter(help="Ways further inner axes split the weights, on neighbouring GPUs."), within(1)
    ] = 1,
    experts: Annotated[int, Parameter(help="Experts of a mixture-of-experts layer.")] = 1,
    active: Annotated[int, Parameter(help="Experts each token goes through.")] = 1,
    ffn: Annotated[
        str | None, Parameter(help="Feed-forward width F, such as 16k (16,384): prints the tensor-parallel bound.")
    ] = None,
    glu: Annotated[bool, Parameter(help="The feed-forward is gated: three matrices instead of two.")] = False,
    profile: ProfileFile = None,
    explain: Explain = False,
    json: Json = False,
) -> int:
    """Critical intensity (FLOP/byte) and critical batch (tokens per GPU) of a GPU or cluster."""
    cluster, measured = target_of(target), profile_or_none(profile)
    if measured is not None:
        cluster = as_measured(cluster, measured)
    near = tp * ep * inner
    answer = roofline_answer(
        cluster, known_dtype(dtype), inner=near, stages=pp, experts=experts, active=active,
        ffn=None if ffn is None else sequence_tokens(ffn, "ffn"), matrices=3 if glu else 2,
    )  # fmt: skip
    notes = [
        *missing_dtype(cluster.gpu, dtype),
        *([] if ffn is None else in_full(ffn, answer.ffn or 0, "ffn", "")),
        *_lines(cluster, answer, pp),
    ]
    if explain:
        notes += _errata(cluster, answer)
    if measured is not None:
        notes.append(f"rates of the GPU are those reached, not the datasheet's: {measured.words}")
    return answered(replace(answer, notes=notes), json)


def _lines(cluster: Cluster, answer: RooflineAnswer, stages: int) -> list[str]:
    rows = answer.levels
    notes = ["Critical batch: backward compute equals gradient traffic at datasheet rates, 2 bytes per gradient."]
    if any(row.dp_sharp_tokens is not None for row in rows):
        notes.append(_notes.SHARP)
    if stages > 1:
        notes.append(f"{stages} pipeline stages: each reduces its own layers; tokens are per GPU of all stages.")
    if not all(row.crossed for row in rows):
        notes.append("'-': the inner axis covers the level, so no gradient crosses it.")
    if answer.ffn is None and cluster.gpu.name.startswith("h100") and cluster.levels[0].kind == "nvlink":
        notes.append(_notes.NVLINK_MEASURED)
    return notes


def _errata(cluster: Cluster, answer: RooflineAnswer) -> list[str]:
    notes = []
    if cluster.gpu.name.startswith("h100") and cluster.levels[0].kind == "nvlink":
        notes += [_notes.SPINE] if len(answer.levels) > 2 else []
        notes += [_notes.TENSOR_BOUND] if answer.ffn is not None else []
        notes.append(_notes.ALL_GATHER)
    if cluster.gpu.architecture == "Blackwell" and cluster.levels[0].kind == "nvlink":
        rate, peak = cluster.levels[0].usable_bandwidth, cluster.gpu.peak("bf16")
        tokens = critical_tokens(peak, rate, in_network=True)
        notes.append(_notes.on_blackwell(cluster.gpu.name, tokens, tensor_parallel_ways(FFN, rate, peak)))
    return [*notes, *_notes.on_gpu(cluster.gpu.name, cluster.gpu.architecture)]
