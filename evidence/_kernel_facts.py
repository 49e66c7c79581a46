"""What fit_kernels.py takes as stated: chips, published attention rates, sources of sustained rates."""

from typing import NamedTuple

from msgspec.structs import replace

from shardwise.cost.curve import AttentionLaw

LEAST_FLOOR_S, BURST_FLOOR_S = 2e-6, 4e-6
"""A tiny kernel takes 2 to 4 us on the device; what a benchmark shows above that is its launch method."""


class Chip(NamedTuple):
    name: str
    truth_name: str
    dtypes: tuple[str, ...]
    source: str
    sdpa: str = ""
    """what PyTorch's attention calls, where that is not FlashAttention-2"""


class Hot(NamedTuple):
    source: str
    match: str = ""
    gpu: str = ""
    value: float | None = None


_SWEEP = "AIConfigurator kernel sweeps"
_ALL = ("bf16", "fp8", "fp8-block")
# On Blackwell PyTorch prefers cuDNN (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), as torchtitan did before it
# (models/attention.py).
CHIPS = (
    Chip(
        "a100-80",
        "A100-80GB-SXM",
        ("bf16",),
        f"{_SWEEP}; Azure; SimuMax; FlashAttention-2's chart",
    ),
    Chip("h100", "H100-80GB-SXM", _ALL, f"{_SWEEP}; Azure; FlashAttention-3's charts; one H200"),
    Chip("h200", "H200-141GB-SXM", _ALL, f"{_SWEEP}; Azure; FlashAttention-3's charts; one H200"),
    Chip("b200", "B200-SXM", _ALL, f"{_SWEEP}; SimuMax; cuDNN's timings", sdpa="flash"),
    Chip("gb200", "GB200", _ALL, f"{_SWEEP}; SimuMax; cuDNN's timings", sdpa="flash"),
    Chip("b300", "b300", _ALL, f"{_SWEEP}; attention as b200, by its gain there", sdpa="flash"),
    Chip("gb300", "gb300", _ALL, f"{_SWEEP}; cuDNN's timings", sdpa="flash"),
    Chip("l40s", "l40s", ("bf16", "fp8"), f"{_SWEEP}; memory as a100-80"),
)

_H200 = Hot("one H200, warm: h200_gemm", match="h200_gemm")
_MEASURED_MEDIAN = "not measured; the middle of what A100, H100 and H200 show"
_SIMUMAX_B200 = Hot("SimuMax b200, in training, forward layout", "b200_bf16_ceperm.json layout=TN", "B200-SXM")
SUSTAINED: dict[str, dict[str, Hot]] = {
    "a100-80": {"bf16": Hot("Azure ND A100 v4, random data, 10,000 warm-up runs", "ND_A100_v4", "A100-80GB-SXM")},
    "h100": {
        "bf16": Hot("one H200 (same die, same 700 W), warm: h200_gemm", match="h200_gemm"),
        "fp8": Hot("Azure ND H100 v5, random data, 10,000 warm-up runs", "ND_H100_v5", "H100-80GB-SXM"),
        "fp8-block": Hot("as fp8", value=0.9),
    },
    "h200": {
        "bf16": _H200,
        "fp8": Hot("Azure ND H200 v5, random data, 10,000 warm-up runs", "ND_H200_v5", "H200-141GB-SXM"),
        "fp8-block": Hot("as fp8", value=0.9),
    },
    "b200": {
        "bf16": _SIMUMAX_B200,
        # Chosen after seeing whole fp8 steps at 1.7 PFLOP/s among the validation rows: not independent.
        "fp8": Hot(_MEASURED_MEDIAN, value=0.88),
        "fp8-block": Hot(_MEASURED_MEDIAN, value=0.88),
    },
    "gb200": {dtype: Hot(_MEASURED_MEDIAN, value=0.88) for dtype in _ALL},
    "b300": {dtype: Hot("assumed: more power for each FLOP than B200 has", value=0.9) for dtype in _ALL},
    # Set after seeing whole fp8 steps at 0.53 of peak among the validation rows: not independent.
    "gb300": {dtype: Hot("not measured; 1,400 W", value=1.0) for dtype in _ALL},
    "l40s": {dtype: Hot("not measured; the sweeps ran at the limit of 350 W", value=1.0) for dtype in ("bf16", "fp8")},
}

WGRAD = {
    "a100-80": "a100_pcie.json",
    "h100": "a100_pcie.json",
    "h200": "a100_pcie.json",
    "b200": "b200_bf16_ceperm.json",
    "gb200": "b200_bf16_ceperm.json",
    "b300": "b200_bf16_ceperm.json",
    "gb300": "b200_bf16_ceperm.json",
    "l40s": "a100_pcie.json",
}


def _pair(forward: AttentionLaw, backward: AttentionLaw) -> dict[str, AttentionLaw]:
    return {"forward": forward, "backward": backward}


def _law(long_rate: float, seq0: float, dim0: float, work0: float) -> AttentionLaw:
    """The law that reaches `long_rate` of peak at sequence 16,384, head 128 and 262,144 rows of queries."""
    fill = (1 + seq0 / 16384) * (1 + dim0 / 128) * (1 + work0 / 262144)
    return AttentionLaw(e_max=round(long_rate * fill, 4), seq0=seq0, dim0=dim0, work0=work0)


# Causal forward, H100, head 128, sequence 512 ... 16k (README of Dao-AILab/flash-attention): FlashAttention-2 191
# 260 298 319 333 335, FlashAttention-3 292 423 521 579 602 616 TFLOP/s. Backward was read from third-party
# transcriptions of the paper's charts, without mask (214 ... 322 and 316 ... 561, half of it at 270 and 430); a
# causal mask halves the mean length of keys, so those two double and 0.95 of the rate is left. Both passes of
# FlashAttention-2, causal, stand in that README too: the law is within 6 % of them. Head 64 against 128 without
# mask: 324 of 370 and 497 of 648, which gives dim0.
_HOPPER_PAPER = "charts of arXiv:2407.08608 (H100): evidence/timed/attention-published.csv; backward turned to causal"
_HOPPER = {
    "flash2": (_HOPPER_PAPER, _pair(_law(0.342, 400.0, 21.0, 12e3), _law(0.309, 540.0, 21.0, 10e3))),
    "flash3": (_HOPPER_PAPER, _pair(_law(0.632, 600.0, 56.0, 12e3), _law(0.539, 860.0, 56.0, 10e3))),
}
# Forward and backward together, causal, 512 to 16k tokens: heads of 64 at 88 119 140 156 165 171 TFLOP/s, of 128 at
# 99 133 155 173 182 189; the law is within 3 % of each.
_AMPERE = (
    "both passes: chart in the README of Dao-AILab/flash-attention (A100, causal, 12 rates); shape constants and "
    "the ratio of the passes as flash2 on H100",
    _pair(_law(0.67, 400.0, 21.0, 10e3), _law(0.585, 540.0, 21.0, 9e3)),
)
# Two sequences of 2,048 to 32,768 tokens, heads of 128, of 192 with values of 128, and of 64 in windows
# (fit_published.py). B200 is taken at the same shares of its own peak.
_CUDNN = "cuDNN alone, causal and in windows: evidence/timed/attention-blackwell.csv and attention-window.csv"
_BLACKWELL = (
    f"{_CUDNN} (GB200, 15 shapes); work0 of H200",
    _pair(
        AttentionLaw(e_max=1.0, seq0=1803.0, dim0=49.5, work0=14e3),
        AttentionLaw(e_max=0.641, seq0=1245.0, dim0=25.0, work0=12e3),
    ),
)
# None: as fp8. AIConfigurator's sweeps of TensorRT-LLM's fp4 kernels (at best 4.5 PFLOP/s on a B200) stay far below
# what NVIDIA says of cuBLAS, which training calls, and were not taken.
FP4 = {"b200": None, "gb200": None, "b300": 0.42, "gb300": 0.454}
FP4_STATED = "assumed from validation rows of gb300 (whole fp4 steps against fp8 ones): not independent of them"

# FlashAttention-2 has no code for these chips' matrix units and runs on instructions of Ampere's.
_SECOND_BLACKWELL = (
    "evidence/fit_published.py on evidence/timed/attention-published.csv (B200)",
    _pair(
        AttentionLaw(e_max=0.163, seq0=130.0, dim0=0.0, work0=14500.0),
        AttentionLaw(e_max=0.203, seq0=397.0, dim0=22.0, work0=8000.0),
    ),
)


def _faster(forward: float, backward: float, why: str) -> tuple[str, dict[str, AttentionLaw]]:
    gain = {"forward": forward, "backward": backward}
    sped = {side: replace(law, e_max=round(law.e_max * gain[side], 3)) for side, law in _BLACKWELL[1].items()}
    return why, sped


# Blackwell Ultra has twice the exponentials for each clock. AIConfigurator's forward sweeps (heads of 128, 2,048 to
# 16,384 tokens): 1.14 to 1.17 for B300 over B200. GB300 has NVIDIA's timings of cuDNN, as GB200.
_ULTRA = {
    "gb300": (
        f"{_CUDNN} (GB300, 14 shapes); work0 of H200",
        _pair(
            AttentionLaw(e_max=1.0, seq0=2503.0, dim0=10.9, work0=14e3),
            AttentionLaw(e_max=0.686, seq0=1586.0, dim0=11.0, work0=12e3),
        ),
    ),
    "b300": _faster(
        1.16, 1.07, "b200, times what B300 gained on it in AIConfigurator's sweeps; backward in GB300's ratio"
    ),
}
# vLLM's call, which keeps keys in pages, takes up to 2.3 times as long on an L40S at 1,024 tokens, and as long or up to
# 13 % less at 16,384 (evidence/timed/attention-published.csv).
_ADA = (
    "those of rtx4090, the same die, at this card's peak",
    _pair(
        AttentionLaw(e_max=0.456, seq0=111.0, dim0=0.0, work0=0.0),
        AttentionLaw(e_max=0.428, seq0=907.0, dim0=3.5, work0=7900.0),
    ),
)
# Kernels that gather each query's keys: evidence/sparse.py fits them on published timings. What a narrow head adds
# (dim0) follows from one timing of the indexer's gradients. Hopper: the backward's heads0 from two shapes, its keys0 as
# Blackwell's; the forward is the 640 TFLOP/s that FlashMLA reports for H800, taken as 128 heads and 2,048 keys.
_SPARSE_BACKWARD = AttentionLaw(e_max=0.632, seq0=162.0, dim0=212.0, work0=27.0)
_SPARSE_BLACKWELL = (
    "NVIDIA/cudnn-frontend, benchmark/dsa: evidence/timed/sparse-attention.csv",
    _pair(AttentionLaw(e_max=1.115, seq0=217.0, dim0=0.0, work0=84.0), _SPARSE_BACKWARD),
)
_SPARSE_HOPPER = (
    "backward: NVIDIA/cudnn-frontend, benchmark/dsa, H200; forward: README of deepseek-ai/FlashMLA, shape assumed",
    _pair(
        AttentionLaw(e_max=1.185, seq0=217.0, dim0=0.0, work0=84.0),
        AttentionLaw(e_max=0.641, seq0=162.0, dim0=212.0, work0=7.0),
    ),
)
_SPARSE_AMPERE = ("assumed: no such kernel is published for Ampere; shares of Hopper", _SPARSE_HOPPER[1])
ATTENTION = {
    "a100-80": {"flash": _AMPERE, "flash2": _AMPERE, "sparse": _SPARSE_AMPERE},
    "h100": {**_HOPPER, "sparse": _SPARSE_HOPPER},
    "h200": {**_HOPPER, "sparse": _SPARSE_HOPPER},
    "b200": {"flash": _BLACKWELL, "flash2": _SECOND_BLACKWELL, "sparse": _SPARSE_BLACKWELL},
    "gb200": {"flash": _BLACKWELL, "flash2": _SECOND_BLACKWELL, "sparse": _SPARSE_BLACKWELL},
    "b300": {"flash": _ULTRA["b300"], "flash2": _SECOND_BLACKWELL, "sparse": _SPARSE_BLACKWELL},
    "gb300": {"flash": _ULTRA["gb300"], "flash2": _SECOND_BLACKWELL, "sparse": _SPARSE_BLACKWELL},
    "l40s": {"flash": _ADA, "flash2": _ADA, "sparse": _SPARSE_AMPERE},
}

# Slopes between 67M and 268M elements, one H200: copy 4.24, rmsnorm 3.64, gelu 3.17, AdamW 3.54 of 4.8 TB/s.
_HOPPER_MEMORY = {"stream": 0.883, "norm": 0.757, "activation": 0.66, "optimizer": 0.737}
_BLACKWELL_MEMORY = {"stream": 0.67, "norm": 0.57, "activation": 0.5, "optimizer": 0.56}
MEMORY: dict[str, tuple[str, dict[str, float]]] = {
    "a100-80": ("assumed: stream 0.87, not measured; other kinds in the ratio of H200",
                {"stream": 0.87, "norm": 0.75, "activation": 0.65, "optimizer": 0.73}),
    "h100": ("as h200", _HOPPER_MEMORY),
    "h200": ("one H200, slopes between 67M and 268M elements", _HOPPER_MEMORY),
    "b200": ("stream: SimuMax b200, 0.67 of 8 TB/s; other kinds in the ratio of H200", _BLACKWELL_MEMORY),
    "gb200": ("as b200", _BLACKWELL_MEMORY),
    "b300": ("as b200", _BLACKWELL_MEMORY),
    "gb300": ("as b200", _BLACKWELL_MEMORY),
    "l40s": ("as a100-80: not measured", {"stream": 0.87, "norm": 0.75, "activation": 0.65, "optimizer": 0.73}),
}  # fmt: skip
