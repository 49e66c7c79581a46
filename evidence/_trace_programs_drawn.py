"""Programs of what `draw_programs.py` has drawn. `_trace_programs.py` says how they are run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from _trace_programs import DEVICE, PROGRAMS, Program, _language_step, _made, _timm, grouped, pictures
from _trace_programs_diffusion import denoiser
from _trace_programs_third import own

DRAWN = Path(__file__).resolve().parent.parent / "evidence" / "accuracy"
LONGEST = {"decoder": 2048, "experts": 2048, "encoder": 512, "encoder-decoder": 512}
TOKENS = {"decoder": 8192, "experts": 4096, "encoder": 8192, "encoder-decoder": 4096}
POSITIONS = ("max_position_embeddings", "n_positions", "max_position", "max_seq_len")
SAFE = 8
"""positions that tables keep for themselves"""
FEWEST_COMPILED = 6
"""layers of what is compiled, as compiling takes the time of the machine"""


def _blocks(model: nn.Module) -> list[nn.Module]:
    """The longest list of layers of one kind."""
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len({type(p) for p in part}) == 1]
    return list(max(lists, key=len))


def _wrapped(model: nn.Module, around: str) -> nn.Module:
    if around == "lora":
        from peft import LoraConfig, get_peft_model

        return get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))  # type: ignore[arg-type]
    if around == "compiled":
        return torch.compile(model)  # type: ignore[return-value]
    if around == "replicas":
        from torch.nn.parallel import DistributedDataParallel

        grouped()
        return DistributedDataParallel(model, device_ids=[0], find_unused_parameters=False)
    if around == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        grouped()
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({type(_blocks(model)[0])}),
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
            device_id=torch.cuda.current_device(),
            use_orig_params=True,
        )
    if around == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        grouped()
        mesh = init_device_mesh("cuda", (1,), mesh_dim_names=("dp",))
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in (*_blocks(model), model):
            fully_shard(part, mesh=mesh, mp_policy=precision)
    return model


def _words(name: str, given: dict[str, Any]) -> None:
    import transformers

    family, around, settings = given["family"], given["around"], dict(given["settings"])
    if around == "compiled":
        settings = {key: FEWEST_COMPILED if isinstance(value, int) and not isinstance(value, bool) else value
                    for key, value in settings.items()}  # fmt: skip
    kind = getattr(transformers, given["kind"])
    if family == "experts" and kind._can_set_experts_implementation():
        settings["experts_implementation"] = "grouped_mm"
    config = kind.config_class(**settings)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    places = [value for key in POSITIONS if isinstance(value := getattr(text, key, None), int) and value > 0]
    seq = min([LONGEST[family], *(1 << ((place - SAFE).bit_length() - 1) for place in places)])
    rows = max(TOKENS[family] // seq, 1)
    # FSDP keeps 32 bits and rounds what it gathers
    wide = given["precision"] == "autocast" or around in ("fsdp1", "fsdp2")

    def build() -> tuple[Any, ...]:
        model = _made(given["kind"], {"use_cache": False, **settings, "config": kind.config_class.__name__},
                      "autocast" if wide else "bf16")  # fmt: skip
        if around == "checkpointed":
            model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        model = _wrapped(model, around)
        return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)

    def batch() -> dict[str, torch.Tensor]:
        tokens = torch.randint(SAFE, text.vocab_size - SAFE, (rows, seq), device=DEVICE)
        inputs = {"input_ids": tokens, "labels": tokens}
        return inputs | ({"attention_mask": torch.ones_like(tokens)} if around == "padded" else {})

    pieces = 4 if around == "accumulated" else 1
    step = _language_step(given["precision"] == "autocast", pieces, bool(given.get("clip")))
    PROGRAMS[name] = Program(
        family, build, batch, _clipped_by_itself if given.get("clip") and around == "fsdp1" else step
    )


def _clipped_by_itself(model: Any, optimizer: torch.optim.Optimizer, inputs: dict[str, torch.Tensor]) -> None:
    """FSDP1 asks to be told of clipping, as it alone knows which rank has which part of the gradients."""
    model(**inputs).loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()


def _classified(name: str, given: dict[str, Any]) -> None:
    """Pictures or sound of Hugging Face."""
    import transformers

    config = getattr(transformers, given["kind"]).config_class(**given["settings"])
    size = getattr(config, "image_size", 224)
    size = size if isinstance(size, int) else size[0]
    half = given["precision"] == "bf16"
    rows, many = (8, 2) if given["family"] == "sound" else (64, 1000)
    settings = {**given["settings"], "config": type(config).__name__, "num_labels": many}

    def made() -> nn.Module:
        return _made(given["kind"], dict(settings), given["precision"])

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        shape = (rows, 160000) if given["family"] == "sound" else (rows, 3, size, size)
        inputs = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16 if half else torch.float32)
        return inputs, torch.randint(0, many, (rows,), device=DEVICE)

    key = "input_values" if given["family"] == "sound" else "pixel_values"
    own(name, given["family"], made, batch, _loss(key), dtype=None if half else torch.bfloat16)


def _loss(key: str) -> Callable[[Any, Any], torch.Tensor]:
    def loss(model: Any, given: Any) -> torch.Tensor:
        found: torch.Tensor = model(**{key: given[0]}, labels=given[1]).loss
        return found

    return loss


SHAPES = {"pictures": (64, 3, 224, 224), "videos": (4, 3, 16, 224, 224), "maps": (16, 3, 256, 256)}
"""of what torchvision's models read"""


def untrained(kind: str, task: str) -> nn.Module:
    """A model of torchvision; one of maps would fetch weights of its first part."""
    from torchvision import models

    made: nn.Module = models.get_model(kind, weights=None, **({"weights_backbone": None} if task == "maps" else {}))
    return made


def _torchvision(name: str, given: dict[str, Any]) -> None:
    kind, task, last = given["kind"], given["task"], given["last"] and given["task"] != "videos"
    shape, many = SHAPES[task], 21 if task == "maps" else 400 if task == "videos" else 1000

    def made() -> nn.Module:
        model = untrained(kind, task)
        return model.to(memory_format=torch.channels_last) if last else model  # type: ignore[call-overload,no-any-return]

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(shape, device=DEVICE)
        labels = (shape[0], *shape[2:]) if task == "maps" else shape[:1]
        if last:
            inputs = inputs.to(memory_format=torch.channels_last)
        return inputs, torch.randint(0, many, labels, device=DEVICE)

    def loss(model: Any, pair: Any) -> torch.Tensor:
        found = model(pair[0])
        found = found["out"] if task == "maps" else getattr(found, "logits", found)
        return nn.functional.cross_entropy(found, pair[1])

    own(name, "torchvision", made, batch, loss)


def programs_of(table: str) -> list[str]:
    """Adds those of a table of `docs/accuracy` and gives their names."""
    before = frozenset(PROGRAMS)
    for given in json.loads((DRAWN / table).read_text(encoding="utf-8"))["programs"]:
        name = given["kind"] if given["family"] == "timm" else given["kind"].partition("For")[0].lower()
        if given.get("around"):
            name += "-" + given["around"]
        if given["family"] == "timm":
            pictures("timm-" + given["kind"], "timm", _timm(given["kind"]), given["rows"], given["size"],
                     last=given["last"])  # fmt: skip
        elif given["family"] == "torchvision":
            _torchvision("torchvision-" + given["kind"], given)
        elif given["family"] in TOKENS:
            _words(name, given)
        elif given["family"] == "diffusion":
            denoiser(name.lower(), given["kind"])
        else:
            _classified(name, given)
    return [name for name in PROGRAMS if name not in before]
