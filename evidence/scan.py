"""The Mamba-2 scan of Nemotron models timed on this GPU with mamba-ssm's kernels, beside what the planner says.

    pip install mamba-ssm einops      (the Triton kernels are enough: MAMBA_SKIP_CUDA_BUILD=TRUE)
    python evidence/scan.py [--out FILE.csv]

Bytes are the planner's count (work/mamba.py); GB/s per SM is those bytes over the measured time and the number of
multiprocessors, the quantity that `SCAN_BYTES_PER_SM_S` states. Medians of 20 after a warm-up, random inputs, bf16.
"""

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from _timed_mixers import Call, Shape, run
from shardwise.spec.arch import model_of

SHAPES = [
    Shape(name, tp, sequences, seq)
    for name in ("nemotron-3-nano", "nemotron-3-super", "nemotron-h-56b", "nemotron-nano-9b-v2")
    for tp, sequences, seq in ((1, 1, 8192), (1, 2, 4096), (1, 4, 8192), (2, 1, 8192), (4, 1, 8192), (8, 1, 8192))
]


def scan_function() -> Callable[..., Any]:
    """mamba-ssm's scan without the package's own start, which wants its compiled parts."""
    found = importlib.util.find_spec("mamba_ssm")
    if found is None or not found.submodule_search_locations:
        raise ImportError("mamba-ssm is not installed: MAMBA_SKIP_CUDA_BUILD=TRUE pip install mamba-ssm einops")
    package = types.ModuleType("mamba_ssm")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["mamba_ssm"] = package
    return importlib.import_module("mamba_ssm.ops.triton.ssd_combined").mamba_chunk_scan_combined  # type: ignore[no-any-return]


def call_of(scan: Callable[..., Any], shape: Shape) -> Call:
    import torch

    mamba = next(kind.mamba for kind in model_of(shape.model).kinds if kind.mamba is not None)
    heads, groups = mamba.heads // shape.tp, max(mamba.groups // shape.tp, 1)

    def random(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*sizes, device="cuda", dtype=dtype).requires_grad_()

    x = random(shape.sequences, shape.seq, heads, mamba.head_dim)
    dt = random(shape.sequences, shape.seq, heads)
    a = (-torch.rand(heads, device="cuda") - 0.5).requires_grad_()
    b, c = (random(shape.sequences, shape.seq, groups, mamba.state) for _ in range(2))
    d, bias = random(heads, dtype=torch.float32), random(heads, dtype=torch.float32)
    return Call(
        lambda: scan(x, dt, a, b, c, mamba.chunk, D=d, dt_bias=bias, dt_softplus=True),
        (x, dt, a, b, c, d, bias),
        torch.randn_like(x),
    )


if __name__ == "__main__":
    sys.exit(run(__doc__, scan_function, call_of, SHAPES, "state space"))
