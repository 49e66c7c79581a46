"""Seconds of the kernels of one decode step of an inference engine: few tokens against all weights and a long cache.

Matrix products follow the law of training (`gpu.gemm_seconds`) with as many rows as sequences decode. Three kernels
have laws of their own, each of bytes over bandwidth, FLOP over rate, and what one launch takes:

    attention = floor + query heads x seconds + cache / (bandwidth x reach) + log2(1 + context / 256) x seconds
    experts   = floor + sqrt((weights touched / bandwidth)^2 + (FLOP with part-filled tiles / rate)^2)
    reduce    = floor + further ranks x seconds + 2 (n - 1) / n x bytes / (NVLink x reach)

`evidence/fit_decode.py` fits the constants and says how far off they are on shapes held out.
"""

from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import Struct

from shardwise import catalog
from shardwise.cost.curve import Numbers
from shardwise.fields import read_file
from shardwise.spec.gpu import Gpu

CACHE_BYTES = 2.0
"""one element of keys and values"""
SPLIT_TOKENS = 256.0
"""of a context that one block of threads reads before its part is merged with others"""
FULL = 0.8
"""share of the multiprocessors from which on FlashAttention-2 leaves each context to one block of threads"""
FILE = Path(catalog.__file__).with_name("decode.toml")


class DecodeLaw(Struct, frozen=True, kw_only=True):
    """Constants of one GPU. The defaults are starting points of a fit, not rates of a chip."""

    attention_floor_s: float = 1e-5
    attention_reach: float = 0.9
    """share of the bandwidth at which a long cache is read"""
    attention_head_s: float = 2e-9
    """for each query head of each sequence"""
    attention_split_s: float = 5e-7
    """for each doubling of the blocks that a context is split into"""
    experts_floor_s: float = 2e-5
    experts_reach: float = 1.5
    """of the bandwidth, for slices that are wide; `experts_slice` takes from it"""
    experts_spread: float = 1.0
    """experts that tokens meet: as if so many times the tokens chose evenly"""
    experts_rate: float = 0.3
    """share of the peak"""
    experts_rows: float = 32.0
    """rows that an expert computes beside its tokens: part-filled tiles"""
    experts_slice: float = 100.0
    """channels of an expert's slice at which half of the reach is left"""
    reduce_floor_s: float = 4e-6
    reduce_rank_s: float = 1e-7
    reduce_reach: float = 0.5
    """share of NVLink's bandwidth"""


def attention_seconds(
    gpu: Gpu, law: DecodeLaw, batch: Numbers, context: Numbers, heads: Numbers, kv_heads: Numbers, width: Numbers,
    *, whole_reach: float = 0.0,
) -> Numbers:  # fmt: skip
    """One query of each sequence over its cache; `width`: channels of a key and as many of a value, over 2.
    `whole_reach`: share of the bandwidth where a kernel no longer splits contexts; 0: it always does."""
    full = batch * kv_heads >= FULL * gpu.sms
    reach = np.where(full, whole_reach, law.attention_reach) if whole_reach else law.attention_reach
    read = 2.0 * CACHE_BYTES * batch * context * kv_heads * width
    blocks = np.log2(1.0 + context / SPLIT_TOKENS)
    seconds = (
        law.attention_floor_s
        + batch * heads * law.attention_head_s
        + read / (gpu.memory_bandwidth * reach)
        + blocks * law.attention_split_s
    )
    return cast(Numbers, seconds)


def experts_seconds(
    gpu: Gpu, law: DecodeLaw, tokens: Numbers, hidden: Numbers, width: Numbers, top_k: Numbers, count: Numbers,
    *, matrices: int = 3, element_bytes: float = 2.0,
) -> Numbers:  # fmt: skip
    """The grouped products of one layer's experts; `width`: of the slice that this GPU has of each."""
    met = count * (1.0 - (1.0 - top_k / count) ** (law.experts_spread * tokens))
    matrix = matrices * hidden * width
    weights = met * matrix * element_bytes * (1.0 + law.experts_slice / width)
    flops = 2.0 * matrix * (tokens * top_k + met * law.experts_rows)
    memory = weights / (gpu.memory_bandwidth * law.experts_reach)
    dtype = "fp8" if element_bytes < CACHE_BYTES else "bf16"
    return law.experts_floor_s + np.hypot(memory, flops / (gpu.peak(dtype) * law.experts_rate))


def all_reduce_seconds(gpu: Gpu, law: DecodeLaw, sent: Numbers, ranks: Numbers) -> Numbers:
    """A small all-reduce in a CUDA graph by kernels that write to their neighbours, inside one node."""
    port = gpu.pcie_bandwidth if gpu.nvlink is None else gpu.nvlink.bandwidth
    moved = 2.0 * (ranks - 1.0) / ranks * sent / (port * law.reduce_reach)
    return law.reduce_floor_s + (ranks - 2.0) * law.reduce_rank_s + moved


@cache
def decode_law(gpu: str) -> tuple[DecodeLaw, str]:
    """The constants of a GPU, and whose they are: the nearest measured chip's where its own were not measured."""
    data = _known()
    own = gpu if gpu in data["gpus"] else _like(gpu, list(data["gpus"])) or data["fallback"]
    fields = {key: value for key, value in data["gpus"][own].items() if key in DecodeLaw.__struct_fields__}
    return msgspec.convert(fields, DecodeLaw), own


def _like(gpu: str, measured: list[str]) -> str:
    """The chip whose kernel constants the catalog takes for this one, where that was measured here."""
    named = catalog.entry("gpus", gpu) if gpu in catalog.names("gpus") else {}
    other: str = named.get("kernels", {}).get("fallback", "")
    other = catalog.resolve("gpus", other) if other else ""
    return other if other in measured else ""


@cache
def _known() -> dict[str, Any]:
    raw = read_file(FILE, "decode", catalog.MOST_BYTES, "constants of decode kernels")
    return cast(dict[str, Any], msgspec.toml.decode(raw))
