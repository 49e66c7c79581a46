"""Draws training programs of public architectures that no earlier set has, by a rule and a seed.

    python evidence/draw_programs.py --seed 8 --out evidence/accuracy/h200_programs_eighth_drawn.json

Pools are transformers' own lists of classes (decoders, encoders, encoders with decoders, pictures, sound), timm's and
torchvision's lists of models and the denoisers of `_trace_programs_diffusion.py`. Classes and families of earlier sets
are left out. Each pool is shuffled and gone through until a kind is full; a class is passed over, and the reason kept,
where its published default configuration cannot be built here, does not have `FEWEST` to `MOST` parameters even with
fewer layers, or is no program that can be trained as drawn: two layers of it do not make a step on a CPU, or leave some
parameters without a gradient under DistributedDataParallel. What is around the step (precision, wrapper) belongs to the
place in the list. `_trace_programs_drawn.py` makes programs of the table. Seeds 5 to 7 were drawn with other places,
without torchvision, seed 5 without the step on a CPU. Seed 8 found the lists of decoders and of sound nearly used up.
"""

import argparse
import json
import random
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
EARLIER = ("_trace_programs.py", "_trace_programs_third.py", "_trace_programs_fourth.py")
DRAWN = HERE.parent / "evidence" / "accuracy"
FEWEST, MOST, MOST_EXPERTS = 2e7, 1.3e9, 2.5e9
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
LOOPED = (
    "mamba",
    "rwkv",
    "xlstm",
    "zamba",
    "jamba",
    "bamba",
    "falcon_h1",
    "recurrent",
    "hybrid",
    "lfm2",
    "kimi",
    "next",
    "reformer",
    "minimax",
    "nemotron_h",
)
"""go through tokens one by one, or in own kernels, where their packages are missing"""
KINDS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "decoder": ("CAUSAL_LM", [("bf16", ""), ("autocast", ""), ("bf16", "padded"), ("autocast", "accumulated"),
                              ("bf16", "checkpointed"), ("bf16", "lora"), ("autocast", "lora"), ("bf16", "compiled"),
                              ("autocast", "replicas"), ("bf16", "fsdp2")]),
    "experts": ("CAUSAL_LM", [("bf16", ""), ("bf16", "")]),
    "encoder": ("MASKED_LM", [("autocast", "padded"), ("bf16", ""), ("autocast", "")]),
    "encoder-decoder": ("SEQ_TO_SEQ_CAUSAL_LM", [("bf16", ""), ("autocast", "")]),
    "pictures": ("IMAGE_CLASSIFICATION", [("autocast", ""), ("autocast", ""), ("bf16", "")]),
    "sound": ("AUDIO_CLASSIFICATION", [("autocast", ""), ("autocast", "")]),
}  # fmt: skip
CLIPPED = ("replicas", "fsdp1", "fsdp2")
TIMM = (
    (128, True),
    (64, False),
    (128, True),
    (64, False),
    (128, True),
    (64, True),
    (64, False),
    (128, False),
    (64, True),
)
"""pictures and whether channels lie next to each other"""
DENOISERS = 3
TORCHVISION = 6
VIDEOS, MAPS = "torchvision.models.video", "torchvision.models.segmentation"


def _used(out: Path) -> str:
    paths = [*map(HERE.joinpath, EARLIER), *(path for path in _tables() if path.resolve() != out.resolve())]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def _tables() -> list[Path]:
    return sorted(DRAWN.glob("h200_programs_*_drawn.json"))


def _base(kind: str) -> str:
    return re.split(r"For(?=[A-Z])|LMHead|Model$", kind)[0]


def _classes(pool: str) -> list[str]:
    from transformers.models.auto import modeling_auto

    names = getattr(modeling_auto, f"MODEL_FOR_{pool}_MAPPING_NAMES")
    found = []
    for values in names.values():
        found += [values] if isinstance(values, str) else list(values)
    return sorted(set(found))


def _config(kind: str) -> Any:
    import transformers

    made = getattr(transformers, kind)
    return made.config_class()


def _parameters(kind: str, config: Any) -> int:
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, kind)(config)
    return sum(p.numel() for p in model.parameters())


def _fitted(kind: str, most: float) -> tuple[dict[str, Any], int] | str:
    """Settings that differ from the class's own, and parameters; or why it is passed over."""
    config = _config(kind)
    layers = next((name for name in LAYERS if isinstance(getattr(config, name, None), int)), None)
    if layers is None:
        return "no number of layers"
    changed: dict[str, Any] = {}
    if getattr(config, "is_encoder_decoder", False) is False and "CausalLM" in kind and hasattr(config, "is_decoder"):
        changed["is_decoder"] = True
    for count in dict.fromkeys([getattr(config, layers), 24, 16, 12, 8, 4]):
        if count > getattr(config, layers):
            continue
        settings = {**changed, layers: count}
        if count != getattr(config, layers) and getattr(config, "layer_types", None):
            settings["layer_types"] = list(config.layer_types)[:count]
        try:
            many = _parameters(kind, type(config)(**settings))
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
        if many <= most:
            return (settings, many) if many >= FEWEST else f"{many:,} parameters"
    return "too large with four layers"


def _fails(family: str, kind: str, settings: dict[str, Any], precision: str, replicas: bool) -> str:
    """Why two layers of it make no step on a CPU, or nothing."""
    import transformers

    made = getattr(transformers, kind)
    few = {name: min(value, 2) if name in LAYERS and not isinstance(value, bool) else value
           for name, value in settings.items()}  # fmt: skip
    if "layer_types" in few:
        few["layer_types"] = few["layer_types"][:2]
    try:
        with _no_values():
            try:
                config = made.config_class(**few)
                model = made(config)
            except Exception:
                config = made.config_class(**settings)
                model = made(config)
        half = precision == "bf16"
        model = model.to(torch.bfloat16 if half else torch.float32).train()
        with torch.autocast("cpu", torch.bfloat16, enabled=not half):
            loss = model(**_few_samples(family, config, half)).loss
        loss.backward()
    except Exception as error:
        return f"no step on a CPU: {type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
    unused = sum(p.requires_grad and p.grad is None for p in model.parameters())
    return f"{unused} parameters without a gradient under DistributedDataParallel" if replicas and unused else ""


@contextmanager
def _no_values() -> Iterator[None]:
    """Weights are left as they are found in memory: what fails does so with any values, and drawing them takes long."""
    import transformers

    places = [(torch.nn.init, name) for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    places.append((transformers.PreTrainedModel, "_initialize_weights"))
    before = [getattr(owner, name) for owner, name in places]
    try:
        for owner, name in places:
            setattr(owner, name, lambda tensor, *_, **__: tensor)
        yield
    finally:
        for (owner, name), value in zip(places, before, strict=True):
            setattr(owner, name, value)


def _few_samples(family: str, config: Any, half: bool) -> dict[str, Any]:
    if family in ("pictures", "sound"):
        size = getattr(config, "image_size", 224)
        size = size if isinstance(size, int) else size[0]
        shape = (2, 16000) if family == "sound" else (2, 3, size, size)
        key = "input_values" if family == "sound" else "pixel_values"
        return {key: torch.randn(shape, dtype=torch.bfloat16 if half else torch.float32),
                "labels": torch.randint(0, 2, (2,))}  # fmt: skip
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    tokens = torch.randint(8, text.vocab_size - 8, (2, 16))
    return {"input_ids": tokens, "labels": tokens}


def drawn(seed: int, out: Path) -> dict[str, Any]:
    used, found, passed = _used(out), list[dict[str, Any]](), dict[str, str]()
    taken: set[str] = set()
    for family, (pool, places) in KINDS.items():
        names = _classes(pool)
        random.Random(f"{seed} {family}").shuffle(names)
        wanted = list(places)
        for kind in names:
            base = _base(kind)
            if not wanted:
                break
            if base in taken or f'"{base}' in used or any(word in kind.lower() for word in map(_plain, LOOPED)):
                continue
            try:
                config = _config(kind)
            except Exception as error:
                passed[kind] = f"{type(error).__name__}: {str(error)[:100]}"
                continue
            experts = any(getattr(config, name, 0) or 0 for name in EXPERTS)
            if family in ("decoder", "experts") and experts != (family == "experts"):
                continue
            print(f"? {kind}", file=sys.stderr, flush=True)
            fitted = _fitted(kind, MOST_EXPERTS if family == "experts" else MOST)
            if isinstance(fitted, str):
                passed[kind] = fitted
                continue
            settings, many = fitted
            precision, around = wanted[0]
            why = _fails(family, kind, settings, precision, around == "replicas")
            if why:
                passed[kind] = why
                continue
            del wanted[0]
            taken.add(base)
            found.append({"family": family, "kind": kind, "settings": settings, "parameters": many,
                          "precision": precision, "around": around, "clip": around in CLIPPED})  # fmt: skip
            print(f"{family:16} {kind:44} {many / 1e6:8.0f} M {precision:9} {around}", file=sys.stderr, flush=True)
    found += _of_timm(seed, used, passed)
    found += _denoisers(seed, used)
    found += _of_torchvision(seed, used, found, passed)
    return {"seed": seed, "programs": found, "passed_over": passed}


def _plain(word: str) -> str:
    return word.replace("_", "")


def _of_torchvision(seed: int, used: str, drawn: list[dict[str, Any]], passed: dict[str, str]) -> list[dict[str, Any]]:
    """Classes of pictures, of videos, and of every place of a picture."""
    from torchvision import models

    from _trace_programs_drawn import untrained

    others = ("quantized", "rcnn", "raft", "ssd", "retinanet", "fcos")
    names = sorted(name for name in models.list_models() if not any(word in name for word in others))
    random.Random(f"{seed} torchvision").shuffle(names)
    earlier = [*re.findall(r'(?:_timm\(|"kind": )"(\w+)"', used), *(one["kind"] for one in drawn)]
    families = {re.match(r"[a-z]+", name.lower())[0] for name in earlier}  # type: ignore[index]
    found: list[dict[str, Any]] = []
    for name in names:
        if len(found) == TORCHVISION:
            break
        family = re.match(r"[a-z]+", name)[0]  # type: ignore[index]
        if family in families:
            continue
        where = models.get_model_builder(name).__module__
        task = "videos" if where.startswith(VIDEOS) else "maps" if where.startswith(MAPS) else "pictures"
        with torch.device("meta"):
            try:
                many = sum(p.numel() for p in untrained(name, task).parameters())
            except Exception as error:
                passed[name] = f"{type(error).__name__}: {str(error)[:100]}"
                continue
        if not 5e6 <= many <= 1.6e8:
            passed[name] = f"{many:,} parameters"
            continue
        families.add(family)
        found.append({"family": "torchvision", "kind": name, "task": task, "last": bool(len(found) % 2),
                      "parameters": many})  # fmt: skip
        print(f"torchvision {name} {many / 1e6:.0f} M {task}", file=sys.stderr, flush=True)
    return found


def _of_timm(seed: int, used: str, passed: dict[str, str]) -> list[dict[str, Any]]:
    import timm

    names = sorted(timm.list_models(exclude_filters=["test_*", "*_384*", "*_448*", "*_512*", "*clip*", "*siglip*"]))
    random.Random(f"{seed} timm").shuffle(names)
    found: list[dict[str, Any]] = []
    earlier = re.findall(r'(?:_timm\(|"kind": )"(\w+)"', used)
    families = {re.match(r"[a-z]+", name.lower())[0] for name in earlier}  # type: ignore[index]
    for name in names:
        if len(found) == len(TIMM):
            break
        family = re.match(r"[a-z]+", name)[0]  # type: ignore[index]
        if family in families:
            continue
        with torch.device("meta"):
            try:
                model = timm.create_model(name)
            except Exception as error:
                passed[name] = f"{type(error).__name__}: {str(error)[:100]}"
                continue
        many = sum(p.numel() for p in model.parameters())
        size = model.default_cfg.get("input_size", (3, 0, 0))[-1]
        if not 1e7 <= many <= 1.2e8 or size > 288:
            passed[name] = f"{many:,} parameters, {size} pixels"
            continue
        families.add(family)
        rows, last = TIMM[len(found)]
        found.append({"family": "timm", "kind": name, "size": size, "rows": rows, "last": last, "parameters": many})
        print(f"timm {name} {many / 1e6:.0f} M {size}", file=sys.stderr, flush=True)
    return found


def _denoisers(seed: int, used: str) -> list[dict[str, Any]]:
    from _trace_programs_diffusion import POOL

    names = sorted(kind for kind in POOL if f'"{kind}"' not in used)
    random.Random(f"{seed} diffusion").shuffle(names)
    return [{"family": "diffusion", "kind": kind} for kind in names[:DENOISERS]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    asked.out.write_text(json.dumps(drawn(asked.seed, asked.out), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
