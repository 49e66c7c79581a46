"""A tenth set of training steps, drawn by `draw_published.py` (set tenth, seed 10): predicted and committed before any
of them was measured, and no constant was changed between. `_trace_programs.py` says how they are run."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _published_tenth import PLAIN, TIMM
from _trace_programs import DEVICE, PROGRAMS, Program, _default, _made, _timm
from _trace_programs_drawn import DRAWN, _blocks, _wrapped
from _trace_programs_ninth import CONFIGS, NINTH, PIECES
from _trace_programs_plain import Decoder, adapted, next_word

TABLE = "h200_programs_tenth_drawn.json"
IN_32_BITS = ("autocast", "scaled", "last", "replicas", "replicas-accumulated", "fsdp1", "fsdp2", "fsdp2-compiled")
"""ways that keep weights in 32 bits; those of pictures all do"""
UNDER_AUTOCAST = ("autocast", "last", "replicas", "replicas-accumulated")
CLIPPED = ("accumulated", "replicas", "replicas-accumulated", "fsdp1", "fsdp2", "fsdp2-compiled", "scaled")
FUSED = ("fused-adam", "fsdp2", "fsdp2-compiled", "blocks-compiled", "grouped")
"""ways whose AdamW is one kernel, as torchtitan has it; others go over lists"""
Given = dict[str, Any]


def _hugging_face(given: Given) -> nn.Module:
    way: str = given["way"]
    settings = {"use_cache": False, **given["settings"]}
    settings["config"] = CONFIGS.get(given["kind"], given["kind"].partition("For")[0] + "Config")
    if way == "looped":
        settings["experts_implementation"] = "eager"
    model = _made(given["kind"], settings, "autocast" if way in IN_32_BITS else "bf16")
    if way.endswith("checkpointed"):
        model.gradient_checkpointing_enable()  # type: ignore[operator]
        if way.startswith("lora"):
            model.enable_input_require_grads()  # type: ignore[operator]
    return model


def _plain(given: Given) -> nn.Module:
    way: str = given["way"]
    with _default(torch.float32 if way in IN_32_BITS else torch.bfloat16):
        model = Decoder(given["settings"] | {"grouped": way == "grouped"}, again=way == "checkpointed")
    if way.endswith("-compiled"):
        for number, block in enumerate(model.layers):
            model.layers[number] = torch.compile(block, fullgraph=True)  # type: ignore[assignment]
    return model.to(DEVICE).train()


def _picture(given: Given) -> nn.Module:
    model: Any = _timm(given["name"].removesuffix("-" + given["way"]))().to(DEVICE).train()
    if given["way"] == "checkpointed":
        model.set_grad_checkpointing()
    return model.to(memory_format=torch.channels_last) if given["way"] == "last" else model  # type: ignore[no-any-return]


def _around(model: nn.Module, way: str) -> nn.Module:
    if way == "lora-by-hand":
        return adapted(model, _blocks(model))
    if way.endswith("-compiled") and not way.startswith("fsdp2"):
        return model
    return _wrapped(model, "lora" if way.startswith("lora") else way.partition("-")[0])


def _built(given: Given, made: Callable[[Given], nn.Module]) -> tuple[Any, ...]:
    way: str = given["way"]
    model = _around(made(given), way)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True if way in FUSED else None)
    return model, optimizer, torch.amp.GradScaler("cuda", enabled=way == "scaled")


def _stepped(loss_of: Callable[[Any, Any], Tensor], given: Given) -> Callable[..., None]:
    way: str = given["way"]
    pieces = PIECES if way.endswith("accumulated") else 1
    wide = way in UNDER_AUTOCAST or given["family"] == "pictures"
    dtype = torch.float16 if way == "scaled" else torch.bfloat16

    def step(model: Any, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, inputs: Any) -> None:
        for piece in range(pieces):
            with model.no_sync() if way == "replicas-accumulated" and piece < pieces - 1 else nullcontext():
                with torch.autocast("cuda", dtype) if wide or way == "scaled" else nullcontext():
                    loss = loss_of(model, inputs) / pieces
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if way in CLIPPED:
            scaler.unscale_(optimizer)
            model.clip_grad_norm_(1.0) if way == "fsdp1" else nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def _own_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    found: Tensor = model(**inputs).loss
    return found


def _classes(model: nn.Module, inputs: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(inputs[0]), inputs[1])


def _tokens(given: Given, more: int = 0) -> Tensor:
    return torch.randint(8, given["settings"]["vocab_size"], (given["rows"], given["seq"] + more), device=DEVICE)


def _words(given: Given) -> dict[str, Tensor]:
    tokens = _tokens(given)
    labels = tokens
    if given["kind"].endswith("Classification"):
        labels = torch.randint(0, 2, tokens.shape[:1], device=DEVICE)
    inputs = {"input_ids": tokens, "labels": labels}
    return inputs | ({"attention_mask": torch.ones_like(tokens)} if given["way"] == "padded" else {})


def _next_words(given: Given) -> Tensor:
    return _tokens(given, more=1)


def _images(given: Given) -> tuple[Tensor, Tensor]:
    images = torch.randn(given["rows"], 3, given["seq"], given["seq"], device=DEVICE)
    if given["way"] == "last":
        images = images.to(memory_format=torch.channels_last)
    return images, torch.randint(0, 1000, (given["rows"],), device=DEVICE)


Kind = tuple[Callable[[Given], nn.Module], Callable[[Given], Any], Callable[[Any, Any], Tensor]]
"""what makes the model, the batch and the loss"""
HUGGING_FACE: Kind = (_hugging_face, _words, _own_loss)
KINDS: dict[str, Kind] = {TIMM: (_picture, _images, _classes), PLAIN: (_plain, _next_words, next_word)}


def _added(given: Given) -> str:
    made, batch, loss = KINDS.get(given["kind"], HUGGING_FACE)
    PROGRAMS[given["name"]] = Program(
        given["family"], lambda: _built(given, made), lambda: batch(given), _stepped(loss, given)
    )
    return str(given["name"])


TENTH = [_added(given) for given in json.loads((DRAWN / TABLE).read_text(encoding="utf-8"))["programs"]]
__all__ = ["NINTH", "PROGRAMS", "TENTH"]
