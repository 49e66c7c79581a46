"""Steps of Vision Transformers in plain PyTorch on one GPU, beside what `shardwise estimate` says of them.

    python benchmarks/pictures.py --json                           # on a CUDA GPU of the catalog; else says why not

transformers' ViTForImageClassification with random weights, AdamW (fused), 224 x 224 pixels, 1,000 classes. time_error
and memory_error: predicted over measured, less 1, by case; *_mape: the mean of their sizes.
"""

import argparse
import json
from importlib.util import find_spec
from statistics import mean, median
from time import perf_counter
from typing import Any

from shardwise import Job, Policy, case_of, cluster_of, model_of, report_of, stack_of
from shardwise.spec.job import precision_of

GPU = "h200"
MODELS = {"vit-l-16": (1024, 24, 16, 4096, 16), "vit-h-14": (1280, 32, 16, 5120, 14)}
"""width, layers, heads, feed-forward width, pixels of a patch"""
BATCHES = (32, 128)
PRECISIONS = ("autocast", "bf16-pure")
WARM_UP, STEPS = 5, 15


def predicted(name: str, batch: int, precision: str) -> tuple[float, float]:
    model = model_of(name)
    job = Job(seq=model.sample_tokens, global_batch=batch, precision=precision_of(precision))
    case = case_of(model, cluster_of(f"1x{GPU}"), job, stack_of("torch-eager"))
    report = report_of(case, Policy(micro_batch=batch))
    return report.step_s, report.peak_bytes


def measured(name: str, batch: int, precision: str) -> tuple[float, float]:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    hidden, layers, heads, wide, patch = MODELS[name]
    torch.manual_seed(0)
    config = ViTConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=wide,
                       patch_size=patch, num_labels=1000)  # fmt: skip
    mixed = precision == "autocast"
    dtype = torch.float32 if mixed else torch.bfloat16
    model = ViTForImageClassification(config).to("cuda", dtype)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    pictures = torch.randn(batch, 3, 224, 224, device="cuda", dtype=dtype)
    classes = torch.randint(0, 1000, (batch,), device="cuda")

    def step() -> float:
        begin = perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
            loss = model(pixel_values=pictures, labels=classes).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        return perf_counter() - begin

    for _ in range(WARM_UP):
        step()
    torch.cuda.reset_peak_memory_stats()
    seconds = median(step() for _ in range(STEPS))
    return seconds, float(torch.cuda.max_memory_allocated())


def missing() -> str:
    """Why nothing can be measured here; empty where it can."""
    if any(find_spec(name) is None for name in ("torch", "transformers")):
        return "torch or transformers is not installed"
    import torch

    if not torch.cuda.is_available():
        return "no CUDA GPU"
    name = torch.cuda.get_device_name()
    return "" if GPU in name.lower() else f"{name} is no {GPU}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON at the end")
    asked = parser.parse_args()
    found: dict[str, Any] = {"skipped": missing(), "cases": []}
    for name in MODELS if not found["skipped"] else ():
        for batch in BATCHES:
            for precision in PRECISIONS:
                (said_s, said), (step_s, peak) = predicted(name, batch, precision), measured(name, batch, precision)
                row = {"model": name, "batch": batch, "precision": precision, "step_s": step_s, "peak_bytes": peak,
                       "time_error": said_s / step_s - 1, "memory_error": said / peak - 1}  # fmt: skip
                found["cases"].append(row)
                print(f"{name} {batch:4} {precision:10} {1e3 * step_s:7.1f} ms ({row['time_error']:+6.1%}) "
                      f"{peak / 2**30:6.2f} GiB ({row['memory_error']:+6.1%})", flush=True)  # fmt: skip
    for what in ("time", "memory"):
        sizes = [abs(row[f"{what}_error"]) for row in found["cases"]]
        found[f"{what}_mape"] = mean(sizes) if sizes else None
    if asked.json:
        print(json.dumps(found))
    elif found["skipped"]:
        print(f"nothing measured: {found['skipped']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
