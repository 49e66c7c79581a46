"""Training steps of diffusers' denoisers: the default configuration of a class, fewer blocks where it is larger than a
drawn program may be, random weights, autocast, the mean square of what is left. `draw_programs.py` draws of `POOL`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from _trace_programs import DEVICE
from _trace_programs_third import own


def _latent(rows: int, channels: int, size: int, **more: Any) -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        extra = {name: torch.randn(*shape, device=DEVICE) for name, shape in more.items()}
        return {"latent": torch.randn(rows, channels, size, size, device=DEVICE),
                "timestep": torch.randint(0, 1000, (rows,), device=DEVICE), **extra}  # fmt: skip

    return made


def _labelled(rows: int) -> Callable[[], dict[str, Any]]:
    plain = _latent(rows, 4, 32)
    return lambda: plain() | {"class_labels": torch.randint(0, 1000, (rows,), device=DEVICE)}


def _patches() -> dict[str, Any]:
    return {"latent": torch.randn(4, 1024, 64, device=DEVICE), "timestep": torch.rand(4, device=DEVICE),
            "encoder_hidden_states": torch.randn(4, 512, 4096, device=DEVICE),
            "pooled_projections": torch.randn(4, 768, device=DEVICE), "img_ids": torch.zeros(1024, 3, device=DEVICE),
            "txt_ids": torch.zeros(512, 3, device=DEVICE)}  # fmt: skip


def _pictures() -> dict[str, Any]:
    return {"latent": torch.randn(8, 3, 256, 256, device=DEVICE)}


POOL: dict[str, tuple[dict[str, Any], str, Callable[[], dict[str, Any]]]] = {
    "UNet2DConditionModel": ({}, "sample", _latent(8, 4, 64, encoder_hidden_states=(8, 77, 1280))),
    "UNet2DModel": ({}, "sample", _latent(16, 3, 64)),
    "DiTTransformer2DModel": ({}, "hidden_states", _labelled(32)),
    "SD3Transformer2DModel": ({"num_layers": 12}, "hidden_states",
                              _latent(8, 16, 64, encoder_hidden_states=(8, 154, 4096), pooled_projections=(8, 2048))),
    "FluxTransformer2DModel": ({"num_layers": 1, "num_single_layers": 3}, "hidden_states", _patches),
    "SanaTransformer2DModel": ({"num_layers": 12}, "hidden_states",
                               _latent(16, 32, 32, encoder_hidden_states=(16, 300, 2304))),
    "AutoencoderKL": ({"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2,
                       "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4},
                      "sample", _pictures),
}  # fmt: skip
"""class: settings that differ from its own, the name of what it denoises, its inputs"""


def denoiser(name: str, kind: str) -> None:
    settings, key, batch = POOL[kind]

    def made() -> Any:
        import diffusers

        return getattr(diffusers, kind)(**settings)

    def loss(model: Any, given: dict[str, Any]) -> Tensor:
        inputs = dict(given)
        found: Tensor = model(**{key: inputs.pop("latent")}, **inputs).sample
        return found.float().square().mean()

    own(name, "diffusion", made, batch, loss)
