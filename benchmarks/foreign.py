"""Checkpoints of other programs: read, verified, converted, loaded by the programs themselves.

`python benchmarks/foreign.py --json --python VENV/bin/python`: the interpreter that has transformers, safetensors,
deepspeed, megatron-core and torchtitan; programs it lacks are listed under `missing`. Ranks are CPU processes.
"""

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _foreign_damage import of_dcp, of_deepspeed, of_safetensors
from shardwise.run.runtime.formats.convert import convert
from shardwise.run.runtime.formats.diff import differences_of
from shardwise.run.runtime.formats.opened import open_checkpoint
from shardwise.run.runtime.formats.stored import MASTER, STEP, WEIGHT, StoredCheckpoint, rows_of
from shardwise.run.runtime.formats.verify import problems_of

HERE = Path(__file__).resolve().parent
NEEDS = {
    "fsdp2": "torch", "torchtitan": "torchtitan", "megatron": "megatron.core", "deepspeed1": "deepspeed",
    "deepspeed2": "deepspeed", "deepspeed3": "deepspeed", "transformers": "transformers",
}  # fmt: skip
LOADED = {
    "fsdp2": ("dcp", "fsdp2", "fsdp2"), "fsdp2 as torchtitan": ("torchtitan", "fsdp2", "torchtitan"),
    "torchtitan": ("torchtitan", "torchtitan", "torchtitan"), "torchtitan as fsdp2": ("dcp", "torchtitan", "fsdp2"),
    "megatron": ("megatron", "megatron", "megatron"),
    "fsdp2 as universal": ("deepspeed-universal", "fsdp2", "deepspeed"),
    "zero 3 as universal": ("deepspeed-universal", "deepspeed3", "deepspeed"),
    "zero 1 as fsdp2": ("dcp", "deepspeed1", "fsdp2"), "zero 3 as fsdp2": ("dcp", "deepspeed3", "fsdp2"),
    "transformers": ("hugging-face", "transformers", "transformers"),
    "fsdp2 as safetensors": ("hugging-face", "fsdp2", "safetensors"),
}  # fmt: skip
"""name -> format written, sample, loader"""
ROUND_TRIPS = {
    "fsdp2": ("dcp", "torchtitan", "shardwise", "deepspeed-universal"), "torchtitan": ("dcp", "shardwise"),
    "megatron": ("megatron",), "deepspeed3": ("dcp", "shardwise"), "transformers": ("hugging-face", "dcp"),
}  # fmt: skip
RANKS = 3
LAYERS_70B = 80


def run(python: str, script: str, *words: str) -> str:
    """Why it failed; empty: it did not."""
    done = subprocess.run([python, str(HERE / script), *words], capture_output=True, text=True, timeout=600)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no words"])[-1][:200]


def digests(checkpoint: StoredCheckpoint) -> dict[str, str]:
    """As _foreign_loaders.py names them."""
    found = {}
    kinds = [MASTER if checkpoint.of_kind(MASTER) else WEIGHT, *checkpoint.moments, STEP]
    for kind in kinds:
        for name, one in checkpoint.of_kind(kind).items():
            rows = rows_of(one, 0, one.shape[0] if one.shape else 1)
            found[f"{WEIGHT if kind == MASTER else kind} {name}"] = hashlib.sha256(rows.tobytes()).hexdigest()
    return found


def accepted(python: str, name: str, samples: Path, work: Path) -> str:
    """Why not; empty: the program's loader has every weight and moment as our reader has them."""
    target, sample, loader = LOADED[name]
    source, out = open_checkpoint(samples / sample), work / name.replace(" ", "-")
    convert(source, target, out, RANKS)
    if why := run(python, "_foreign_loaders.py", loader, str(out), str(work / "loaded.json")):
        return why
    loaded = json.loads((work / "loaded.json").read_text())
    if loader == "megatron":
        if why := run(python, "_foreign_loaders.py", loader, str(samples / sample), str(work / "first.json")):
            return why
        first = json.loads((work / "first.json").read_text())
        return "" if first == loaded else "the converted one is loaded with other values than the original"
    ours = digests(source)
    compared = [key for key in loaded if key in ours]
    unequal = [key for key in compared if loaded[key] != ours[key]]
    kinds = (WEIGHT,) if loader in ("deepspeed", "safetensors", "transformers") else ("",)
    lost = [key for key in ours if key not in loaded and key.startswith(kinds)]
    return f"{(unequal + lost)[0]} differs" if unequal + lost or not compared else ""


def damaged(python: str, samples: Path, work: Path) -> Iterator[tuple[str, bool]]:
    """Name, and whether it was noticed."""
    for sample, cases in (("fsdp2", of_dcp()), ("deepspeed1", of_deepspeed()), ("transformers", of_safetensors())):
        for name, damage in cases if (samples / sample).is_dir() else ():
            folder = work / "damaged"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(samples / sample, folder)
            if sample.startswith("deepspeed"):
                # its files name its classes
                if why := run(python, "_foreign_damage.py", name, str(folder)):
                    raise RuntimeError(f"{name}: {why}")
            else:
                damage(folder)
            try:
                noticed = bool(problems_of(open_checkpoint(folder), read=lambda _: None))
            except ValueError:
                noticed = True
            yield name, noticed and not (folder / "ran").exists()


def peak_rss(work: Path, layers: int) -> dict[str, Any]:
    """Of converting a checkpoint with as many tensors as a 70B model has, and those of `layers` layers, the embedding
    and the head as large: a sparse safetensors folder, bf16."""
    folder, out = work / "wide", work / "wide-dcp"
    folder.mkdir()
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (128256, 8192),
        "lm_head.weight": (128256, 8192),
        "model.norm.weight": (8192,),
    }
    for layer in range(LAYERS_70B):
        head, part = f"model.layers.{layer}.", 1 if layer < layers else 64
        wide, ffn, key = 8192 // part, 28672 // part, 1024 // part
        shapes |= {
            f"{head}self_attn.q_proj.weight": (wide, wide), f"{head}self_attn.k_proj.weight": (key, wide),
            f"{head}self_attn.v_proj.weight": (key, wide), f"{head}self_attn.o_proj.weight": (wide, wide),
            f"{head}mlp.gate_proj.weight": (ffn, wide), f"{head}mlp.up_proj.weight": (ffn, wide),
            f"{head}mlp.down_proj.weight": (wide, ffn), f"{head}input_layernorm.weight": (wide,),
            f"{head}post_attention_layernorm.weight": (wide,),
        }  # fmt: skip
    places, total = {}, 0
    for number, (name, shape) in enumerate(shapes.items()):
        size = 2 * shape[0] * (shape[1] if shape[1:] else 1)
        header = json.dumps({name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}}).encode()
        file = folder / f"model-{number + 1:05}-of-{len(shapes):05}.safetensors"
        with file.open("wb") as sparse:
            sparse.write(len(header).to_bytes(8, "little") + header)
            sparse.truncate(8 + len(header) + size)
        places[name], total = file.name, total + size
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    code = "import sys, resource; from pathlib import Path; " \
        "from shardwise.run.runtime.formats.opened import open_checkpoint as o; " \
        "from shardwise.run.runtime.formats.convert import convert; " \
        "convert(o(Path(sys.argv[1])), 'dcp', Path(sys.argv[2]), 8); " \
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(folder), str(out)], capture_output=True, text=True)
    shutil.rmtree(out, ignore_errors=True)
    share = round(total / 141.1e9, 3)
    return {
        "bytes": int(done.stdout or 0), "layers_as_wide": layers, "tensors": len(shapes),
        "checkpoint_bytes": total, "of_70b": share,
        "why": done.stderr[-200:],
    }  # fmt: skip


def measured(python: str, layers: int, told: Callable[[str], None]) -> dict[str, Any]:
    missing = [one for one, module in NEEDS.items() if run_code(python, f"import {module}")]
    with tempfile.TemporaryDirectory() as folder:
        work, samples, read, trips, loaders = Path(folder), Path(folder) / "samples", {}, {}, {}
        for one in [each for each in NEEDS if each not in missing]:
            told(f"written by {one}")
            why = run(python, "_foreign_samples.py", one, str(samples / one))
            if why:
                read[one] = f"the program wrote nothing: {why}"
                missing.append(one)
                continue
            found = open_checkpoint(samples / one)
            problems = problems_of(found, read=lambda _: None)
            read[one] = problems[0] if problems else found.format
        for one, targets in ROUND_TRIPS.items():
            for target in targets if one not in missing else ():
                source, there = open_checkpoint(samples / one), work / f"{one}-{target}"
                convert(source, target, there, RANKS)
                found = differences_of(by_master(source), open_checkpoint(there))
                rows = [one for one in found if not one.only_in or one.kind == WEIGHT]
                trips[f"{one} {target}"] = "equal" if not rows else f"{rows[0].kind} {rows[0].tensor} differs"
                told(f"{one} to {target} and back: {trips[f'{one} {target}']}")
        for name, (_, sample, loader) in LOADED.items():
            lacks = loader != "safetensors" and run_code(python, f"import {NEEDS.get(loader, loader)}")
            if sample not in missing and not lacks:
                try:
                    loaders[name] = accepted(python, name, samples, work) or "equal"
                except ValueError as error:
                    loaders[name] = str(error)[:200]
                told(f"loaded {name}: {loaders[name]}")
        noticed = dict(damaged(python, samples, work))
        told(f"{layers} layers as wide as a 70B's")
        memory = peak_rss(work, layers) if layers else {}
    return {
        "formats_read": read, "formats_written": sorted({target for target, _, _ in LOADED.values()} | {"shardwise"}),
        "round_trips": trips, "loaders_accepted": loaders,
        "tensors_equal": [sum(v == "equal" for v in (*trips.values(), *loaders.values())), len(trips) + len(loaders)],
        "damaged_noticed": [sum(noticed.values()), len(noticed)],
        "not_noticed": [name for name, one in noticed.items() if not one], "peak_rss_70b": memory, "missing": missing,
        "own_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }  # fmt: skip


def by_master(checkpoint: StoredCheckpoint) -> StoredCheckpoint:
    """With fp32 copies as the weights, as they are converted."""
    if masters := checkpoint.of_kind(MASTER):
        import msgspec

        kept = {n: one for n, one in checkpoint.tensors.items() if one.kind not in (WEIGHT, MASTER, STEP)}
        kept |= {n: msgspec.structs.replace(one, kind=WEIGHT) for n, one in masters.items()}
        return msgspec.structs.replace(checkpoint, tensors=kept)
    return checkpoint


def run_code(python: str, code: str) -> bool:
    """Whether it fails."""
    return subprocess.run([python, "-c", code], capture_output=True).returncode != 0


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--json", action="store_true")
    given.add_argument("--python", default=sys.executable)
    given.add_argument("--layers", type=int, default=2, help="of a 70B's 80, for the peak of memory; 0: not measured")
    args = given.parse_args()
    found = measured(args.python, args.layers, lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
