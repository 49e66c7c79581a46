"""One product of whole numbers, twice: its result is exact, so that it can be checked and must be equal everywhere."""

import hashlib
import platform

import torch

from shardwise.cost.calibrate.measure._bench import bench_on
from shardwise.run.preflight.measurements import DeviceProduct

SIZE = {"cuda": 4096, "cpu": 256}
LARGEST = 8
"""of the numbers: products and sums of them stay exact in the sums of any unit"""


def product_facts(device: str) -> DeviceProduct:
    """`equal`: twice the same bits, and those of the host; `digest`: for other devices to compare."""
    where = torch.device(device)
    size, dtype = SIZE[where.type], torch.bfloat16 if where.type == "cuda" else torch.float32
    draws = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-LARGEST, LARGEST + 1, (size, size), generator=draws).double() for _ in range(2))
    left, right = (each.to(where, dtype) for each in (a, b))
    first, second = (torch.matmul(left, right) for _ in range(2))
    bench = bench_on(device, quick=True)
    seconds = bench.seconds([lambda: torch.matmul(left, right)])
    found = first.double().cpu()
    exact = (a @ b).to(dtype).double()
    return DeviceProduct(
        device=device, name=_name(where), torch=str(torch.__version__),
        equal=bool(torch.equal(first, second)) and bool(torch.equal(found, exact)),
        digest=hashlib.sha256(found.numpy().tobytes()).hexdigest()[:16], flops_per_s=2.0 * size**3 / seconds,
    )  # fmt: skip


def _name(where: torch.device) -> str:
    return torch.cuda.get_device_name(where) if where.type == "cuda" else platform.machine()


def devices_here() -> list[str]:
    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else ["cpu"]
