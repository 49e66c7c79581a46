"""The gated delta rule of Qwen3-Next timed on this GPU with flash-linear-attention's kernels, beside the planner.

    pip install fla-core einops
    python evidence/delta.py [--out FILE.csv]

Bytes are the planner's count (work/delta.py); GB/s per SM is those bytes over the measured time and the number of
multiprocessors, the quantity that `SCAN_BYTES_PER_SM_S` states. Medians of 20 after a warm-up, random inputs, bf16.
Results are not looked at: fla refuses some versions of Triton on Hopper because one gradient comes out wrong there, and
this script times those kernels nevertheless.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from _timed_mixers import Call, Shape, run
from shardwise.spec.arch import model_of

SHAPES = [
    Shape("qwen3-next-80b-a3b", tp, sequences, seq)
    for tp, sequences, seq in ((1, 4, 4096), (1, 1, 4096), (1, 8, 4096), (1, 1, 32_768), (2, 4, 4096))
]


def rule() -> Callable[..., Any]:
    try:
        output = importlib.import_module("fla.ops.common.chunk_o")
        found = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    except ModuleNotFoundError as missing:
        raise ImportError(f"{missing.name} is not installed: pip install fla-core einops") from None
    output.TRITON_ABOVE_3_7_1 = True  # type: ignore[attr-defined]
    return found  # type: ignore[no-any-return]


def call_of(chunked: Callable[..., Any], shape: Shape) -> Call:
    import torch

    delta = next(kind.delta for kind in model_of(shape.model).kinds if kind.delta is not None)
    sizes = (shape.sequences, shape.seq, delta.value_heads // shape.tp)

    def unit() -> torch.Tensor:
        drawn = torch.randn(*sizes, delta.key_dim, device="cuda")
        return torch.nn.functional.normalize(drawn, dim=-1).bfloat16().requires_grad_()

    query, key = unit(), unit()
    value = torch.randn(*sizes, delta.value_dim, device="cuda", dtype=torch.bfloat16).requires_grad_()
    decay = (-torch.rand(*sizes, device="cuda")).requires_grad_()
    step = torch.rand(*sizes, device="cuda", dtype=torch.bfloat16).requires_grad_()
    return Call(
        lambda: chunked(query, key, value, g=decay, beta=step)[0],
        (query, key, value, decay, step),
        torch.randn_like(value),
    )


if __name__ == "__main__":
    sys.exit(run(__doc__, rule, call_of, SHAPES, "delta"))
