"""A ninth set of training steps, drawn by `draw_published.py` (seed 9): published models as users of Hugging Face train
them. Predicted and committed before any of them was measured, and no constant was changed between."""

import json
from typing import Any

import torch
from torch import nn

import _trace_programs_fourth  # noqa: F401
from _trace_programs import DEVICE, PROGRAMS, Program, _language_step, _made
from _trace_programs_drawn import DRAWN, _clipped_by_itself, _wrapped
from _trace_programs_eighth import EIGHTH

TABLE = "h200_programs_ninth_drawn.json"
CONFIGS = {"GPT2LMHeadModel": "GPT2Config", "Gemma3ForCausalLM": "Gemma3TextConfig"}
IN_32_BITS = ("autocast", "lora-autocast", "replicas", "fsdp1", "fsdp2")
"""ways that keep weights in 32 bits"""
UNDER_AUTOCAST = ("autocast", "lora-autocast", "replicas")
CLIPPED = ("accumulated", "replicas", "fsdp1", "fsdp2")
PIECES = 4


def _built(given: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    way: str = given["way"]
    settings = {"use_cache": False, **given["settings"]}
    settings["config"] = CONFIGS.get(given["kind"], given["kind"].partition("For")[0] + "Config")
    if way == "plain-attention":
        settings["attn_implementation"] = "eager"
    model = _made(given["kind"], settings, "autocast" if way in IN_32_BITS else "bf16")
    if way.endswith("checkpointed"):
        model.gradient_checkpointing_enable()  # type: ignore[operator]
        if way.startswith("lora"):
            model.enable_input_require_grads()  # type: ignore[operator]
    model = _wrapped(model, "lora" if way.startswith("lora") else way)
    trained = [p for p in model.parameters() if p.requires_grad]
    return model, torch.optim.AdamW(trained, lr=1e-5, fused=True if way == "fused-adam" else None)


def _added(given: dict[str, Any]) -> str:
    way, name = given["way"], given["name"]

    def batch() -> dict[str, torch.Tensor]:
        tokens = torch.randint(8, given["settings"]["vocab_size"], (given["rows"], given["seq"]), device=DEVICE)
        inputs = {"input_ids": tokens, "labels": tokens}
        return inputs | ({"attention_mask": torch.ones_like(tokens)} if way == "padded" else {})

    step = _language_step(way in UNDER_AUTOCAST, PIECES if way == "accumulated" else 1, way in CLIPPED)
    PROGRAMS[name] = Program(
        given["family"], lambda: _built(given), batch, _clipped_by_itself if way == "fsdp1" else step
    )
    return str(name)


NINTH = [_added(given) for given in json.loads((DRAWN / TABLE).read_text(encoding="utf-8"))["programs"]]
__all__ = ["EIGHTH", "NINTH", "PROGRAMS"]
