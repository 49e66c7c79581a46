"""Whether kernels on the GPU give the bits of torch: message by message, and through whole strategies."""

from collections.abc import Callable

import torch
from torch import Tensor

from shardwise.plugins.compressors import Compressor, Draw, compressor
from shardwise.plugins.sync import ParameterLayout, descend, strategy
from shardwise.plugins.sync._group import GroupComm

DRAW = Draw()
Settings = tuple[tuple[str, dict[str, float]], ...]
SETTINGS: Settings = (
    ("sign", {}), ("sign", {"block": 1024}), ("int4", {}), ("int4", {"group": 32}), ("block_top_k", {}),
    ("block_top_k", {"block": 1024}), ("block_top_k", {"block": 128, "ratio": 0.3}), ("block_top_k", {"ratio": 1.0}),
)  # fmt: skip
SIZES = (1, 33, 4096, 50_001, 262_144)
STRATEGIES = ("mem_sgd", "double_squeeze", "ef21_sgdm", "neolithic")


def _with(x: Tensor, value: float) -> Tensor:
    x[x.numel() // 2] = value
    return x


def _lone(x: Tensor) -> Tensor:
    """Zeros of both signs and one number whose mean with them is zero."""
    at, x = int(x.argmin()), x * 0.0
    x[at] = -1e-45
    return x


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "heavy": lambda x: x**5,
    "zero": lambda x: x * 0.0,
    "lone": _lone,
    "few": lambda x: torch.where(x > 3.0, x, torch.zeros_like(x)),
    "equal": torch.sign,
    "denormal": lambda x: x * 1e-39,
    "all scales": lambda x: x * torch.exp2(torch.arange(x.numel(), dtype=torch.float32) % 250 - 140),
    "infinite": lambda x: _with(x, -torch.inf),
    "nan": lambda x: _with(x, torch.nan),
}


def equal_bits(a: Tensor, b: Tensor) -> bool:
    """NaNs count as equal whatever their payload."""
    a, b = a.cpu(), b.cpu()
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype != torch.float32:
        return torch.equal(a, b)
    same = (a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())
    return bool(same.all())


def differs(found: Compressor, row: Tensor, held: Tensor, device: torch.device) -> list[str]:
    """What differs between the kernels on `device` and torch on the CPU and there."""
    kernels, d, wrong = found.kernels(device), row.numel(), []
    assert kernels is not None, f"{found.name}: no kernels for {device}"
    for where in (torch.device("cpu"), device):
        x, h = row.to(where), held.to(where)
        for way in ("feed_back", "track"):
            p = h + x if way == "feed_back" else x - h
            payload = found.encode(p, DRAW)
            said = found.decode(payload, d, DRAW)
            left = p - said if way == "feed_back" else h + said
            out = torch.full((d,), 7.0, device=device)
            got = getattr(kernels, way)(row.to(device), held.to(device), out)
            if not all(equal_bits(a, b) for a, b in zip((*got, out), (*payload, left), strict=True)):
                wrong.append(f"{way} against torch on {where.type}")
        payloads = [found.encode(x * scale, DRAW) for scale in (1.0, -0.7, 3.3)]
        for n in (1, 2, 3):
            total = found.decode(payloads[0], d, DRAW)
            for payload in payloads[1:n]:
                total = total + found.decode(payload, d, DRAW)
            mean = kernels.mean([tuple(part.to(device) for part in payload) for payload in payloads[:n]], d)
            if not equal_bits(mean, total / torch.full((), float(n), device=where)):
                wrong.append(f"mean of {n} against torch on {where.type}")
    return wrong


def check_kernels(
    device: torch.device, sizes: tuple[int, ...] = SIZES, codecs: Settings = SETTINGS
) -> tuple[int, list[str]]:
    """(cases, those that differ)."""
    cases, wrong = 0, []
    for name, settings in codecs:
        for kind, make in KINDS.items():
            for d in sizes:
                draw = torch.Generator().manual_seed(d)
                row = make(torch.randn(d, generator=draw))
                held = torch.randn(d, generator=draw) if kind == "normal" else make(torch.randn(d, generator=draw))
                found = differs(compressor(name, **settings), row, held, device)
                cases += 10
                wrong += [f"{name} {settings or ''} {kind} {d}: {what}" for what in found]
    return cases, wrong


def check_strategies(device: torch.device, d: int = 20_001, n: int = 3, steps: int = 4) -> tuple[int, list[str]]:
    """Simulations that end with other bits on the device than on the CPU."""
    noise = torch.randn(steps, n, d, generator=torch.Generator().manual_seed(5))
    cases, wrong = 0, []
    for name in STRATEGIES:
        for codec in ("sign", "int4", "block_top_k"):
            ends = [ended(name, codec, noise.to(where)) for where in (torch.device("cpu"), device)]
            alone = [_alone(name, codec, noise[:, :1].to(where)) for where in (torch.device("cpu"), device)]
            cases += 2
            if not equal_bits(*ends):
                wrong.append(f"{name} with {codec}: differs from the CPU")
            if not equal_bits(*alone):
                wrong.append(f"{name} with {codec}, as in a run: differs from the CPU")
    return cases, wrong


def _alone(name: str, codec: str, noise: Tensor) -> Tensor:
    """Directions of the only worker of a run."""
    found = strategy(name, compressor=compressor(codec))
    comm = GroupComm(ParameterLayout.flat(noise.shape[2]), [0], 0, device=noise.device)
    state = found.init(comm, noise[0])
    return torch.cat([found.on_grad(comm, state, noise[0], g, 1.0, t) for t, g in enumerate(noise)])


def ended(name: str, codec: str, noise: Tensor) -> Tensor:
    """The rows a simulation ends with, its gradients being x + noise (steps, n, d)."""

    def gradient(x: Tensor, t: int) -> Tensor:
        return x + noise[t]

    x = torch.ones_like(noise[0])
    found, _, _ = descend(strategy(name, compressor=compressor(codec)), x, gradient, steps=len(noise), lr=0.0625)
    return found
