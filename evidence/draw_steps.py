"""Draws random one-GPU training steps and writes down what is predicted for them, before anybody measures.

`python evidence/draw_steps.py --seed 3 --count 28 --out predicted.csv`, then on the GPU
`python benchmarks/measure_steps.py --configs predicted.csv --out measured.csv`. One seed always draws the same steps.
"""

import argparse
import csv
import io
import sys
import tempfile
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))  # of the benchmarks: the steps of one GPU
from _step_configs import COLUMNS, Config
from shardwise.measured.validate.one_gpu import one_gpu_predictions

GIB = 2.0**30
MOST_PARAMETERS, MOST_LOGITS, LARGEST_PEAK = 3.5e9, 2.2e9, 100.0
PREDICTED = ("predicted_step_ms", "predicted_peak_gib")


def drawn(random: Random, number: int) -> Config:
    """One dense decoder that a GPU of this size holds: by parameters and logits here, by its peak below."""
    while True:
        hidden = random.choice((1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192))
        heads = hidden // random.choice((64, 128))
        gated = random.random() < 0.65
        ffn = round(hidden * random.choice((2.667, 3.0, 3.5, 4.0)) / 256) * 256 if gated else 4 * hidden
        vocab = random.choice((32000, 50304, 64000, 128256, 151936))
        seq = random.choice((1024, 2048, 4096, 8192, 16384))
        config = Config(
            name=f"drawn-{number:02}", layers=random.randint(2, 36), hidden=hidden, heads=heads,
            kv_heads=heads // random.choice((1, 1, 4, 8)) if gated else heads, ffn=ffn, glu=gated, vocab=vocab, seq=seq,
            micro_batch=random.choice((1, 2, 4, 8)), accum=random.choice((1, 1, 1, 2, 4)),
            recompute=random.choice(("none", "none", "full")),
            precision=random.choice(("autocast", "autocast", "bf16-pure")), compiled=random.random() < 0.35, fused=True,
        )  # fmt: skip
        tokens = config.seq * config.micro_batch
        parameters = config.layers * hidden * (4 * hidden + (2 + gated) * ffn) + 2 * vocab * hidden
        small = parameters < MOST_PARAMETERS and tokens * vocab < MOST_LOGITS
        if small and config.kv_heads and 4096 <= tokens <= 16384:
            return config


def written(configs: list[Config]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(config.cells() for config in configs)
    return file.getvalue()


def predictions(configs: list[Config]) -> list[tuple[float, float]]:
    """Milliseconds and GiB of each, as `shardwise validate` predicts the row of a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.csv"
        path.write_text(written(configs), encoding="utf-8")
        found = one_gpu_predictions(path)
    return [((one.step_s or 0.0) * 1e3, (one.peak_bytes or 0.0) / GIB) for one in found]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=28)
    parser.add_argument("--out", type=Path, required=True, help="CSV of configurations and predictions")
    asked = parser.parse_args(words)
    if asked.count < 1:
        parser.error(f"--count: {asked.count} steps; write 1 or more")
    if not asked.out.parent.is_dir():
        parser.error(f"--out: there is no folder {asked.out.parent}; write a path in one that is there")
    random, configs, predicted = Random(asked.seed), [], []
    while len(configs) < asked.count:
        config = drawn(random, len(configs) + 1)
        [(step, peak)] = predictions([config])
        if peak < LARGEST_PEAK:
            configs.append(config)
            predicted.append((step, peak))
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        stated = list(configs[0].cells())
        writer = csv.DictWriter(file, (*stated, *PREDICTED), lineterminator="\n")
        writer.writeheader()
        for config, (step, peak) in zip(configs, predicted, strict=True):
            writer.writerow(config.cells() | dict(zip(PREDICTED, (f"{step:.3f}", f"{peak:.3f}"), strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
