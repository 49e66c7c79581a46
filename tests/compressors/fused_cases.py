"""Run by test_fused.py in a process of its own: Triton decides when it is imported whether it compiles or interprets.

Prints one line of JSON: what differs from torch, by kind of case.
"""

import json
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import _sync_gpu_checks as checks
from shardwise.plugins.compressors import compressor
from shardwise.plugins.compressors.sign import Sign

SETTINGS = (("sign", {"block": 128}), ("int4", {"group": 64}), ("block_top_k", {"block": 128, "ratio": 0.05}))
SIZES = (33, 300)


class Wrong(Sign):
    def decode(self, payload, d, draw):
        return super().decode(payload, d, draw) * (1 + 2**-23)


def strategies(device: torch.device) -> tuple[list[str], int]:
    """Those that end with other bits without kernels; and how often kernels were asked for."""
    noise, wrong, asked = torch.randn(2, 3, 200), [], []
    for name, _ in SETTINGS:
        codec = type(compressor(name))
        kernels = codec.kernels
        for strategy in checks.STRATEGIES:
            codec.kernels = lambda self, device, kernels=kernels: asked.append(kernels(self, device)) or asked[-1]
            fused = checks.ended(strategy, name, noise.to(device))
            codec.kernels = lambda *_: None
            if not checks.equal_bits(fused, checks.ended(strategy, name, noise)):
                wrong.append(f"{strategy} with {name}")
        codec.kernels = kernels
    return wrong, sum(found is not None for found in asked)


def main() -> None:
    warnings.simplefilter("ignore")  # numpy about infinities, in the interpreter
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cases, wrong = checks.check_kernels(device, SIZES, SETTINGS)
    differ, used = strategies(device)
    seen = checks.differs(Wrong(128), torch.randn(300), torch.randn(300), device)
    print(json.dumps({"cases": cases, "kernels": wrong, "strategies": differ, "used": used, "sabotage": seen}))


if __name__ == "__main__":
    main()
