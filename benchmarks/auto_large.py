"""An 8B-class model of transformers on one GPU: splits of `auto` on ranks that share it over NCCL against one process.

    python benchmarks/auto_large.py --json --out FOLDER

loss_gap: the worst of 4 steps in bf16, relative (bf16's own rounding is in it). memory_gap: the peak of rank 0 as
`trace` predicts it before the ranks start, against what the rank had. Times of ranks that share a GPU are not those of
a GPU for each: of these only one process counts. A part that fails gives `why`. The cost of hooks with one rank is
measured by `auto_overhead.py --width 4096 --layers 8 --tokens 4096 --samples 1`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch

from shardwise.run.auto.answer import understood_source
from shardwise.run.auto.from_config import config_source
from shardwise.spec.load import cluster_of

LLAMA_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "vocab_size": 128256, "samples": 2, "tokens": 2048}  # fmt: skip
RANK = Path(__file__).parent / "_auto_large_step.py"
SPLITS = ("tp=2", "fsdp=2")
MOST_S = 150
SHARED = """import sys
from shardwise.run.runtime.share_gpu import run_script
code, why = run_script([sys.argv[1]], 2)
print(why, file=sys.stderr)
sys.exit(code)"""


def planned(sizes: dict[str, int], split: str, path: Path) -> None:
    fields = {k: v for k, v in sizes.items() if k not in ("samples", "tokens")}
    source = config_source({"model_type": "llama", **fields}, "llama", sizes["samples"], sizes["tokens"])
    path.write_bytes(msgspec.json.encode(understood_source(source, cluster_of("2xh200"), ["pp=1,cp=1", split]).plan))


def line_of(words: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """The last JSON that a command of Python prints."""
    done = subprocess.run([sys.executable, *words], env={**os.environ, **variables}, capture_output=True, text=True,
                          timeout=MOST_S)  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(done.stderr.strip()[-600:] or f"exit code {done.returncode}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def tried(split: str, sizes: dict[str, int], out: Path, plain: dict[str, Any]) -> dict[str, Any]:
    path = out / f"plan-{split}.json"
    variables = {"SHARDWISE_LARGE": json.dumps(sizes), "SHARDWISE_PLAN": str(path)}
    facts: dict[str, Any] = {}
    try:
        planned(sizes, split, path)
        traced = line_of(["-m", "shardwise", "trace", str(RANK), "--world", "2", "--rank", "0", "--json"], variables)
        facts["predicted_bytes"] = traced["peak_bytes"]
    except Exception as error:  # the ranks are run all the same
        facts["why"] = f"{type(error).__name__}: {error}"
    try:
        facts |= line_of(["-c", SHARED, str(RANK)], variables)
        pairs = zip(facts["losses"], plain["losses"], strict=True)
        facts["loss_gap"] = max(abs(a / b - 1) for a, b in pairs)
        facts["memory_gap"] = facts["predicted_bytes"] / facts["peak_bytes"] - 1
    except Exception as error:
        facts.setdefault("why", f"{type(error).__name__}: {error}")
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--layers", type=int, default=LLAMA_8B["num_hidden_layers"])
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print(json.dumps({"loss_gap": None, "why": "no CUDA GPU here"}))
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    sizes = {**LLAMA_8B, "num_hidden_layers": asked.layers}
    variables = {"SHARDWISE_LARGE": json.dumps(sizes), "SHARDWISE_PLAN": ""}
    found: dict[str, Any] = {}
    try:
        found["plain"] = line_of([str(RANK)], variables)
        traced = line_of(["-m", "shardwise", "trace", str(RANK), "--world", "1", "--json"], variables)
        found["plain"]["memory_gap"] = traced["peak_bytes"] / found["plain"]["peak_bytes"] - 1
    except Exception as error:
        found.setdefault("plain", {})["why"] = f"{type(error).__name__}: {error}"
    for split in SPLITS:
        found[split] = tried(split, sizes, asked.out, found["plain"])
        (asked.out / "large.json").write_text(json.dumps(found))
        print(split, found[split], file=sys.stderr, flush=True)
    worst = [found[split].get("loss_gap") for split in SPLITS]
    gaps = [found[part].get("memory_gap") for part in ("plain", *SPLITS)]
    print(json.dumps({**found, "loss_gap": None if None in worst else max(worst),
                      "memory_gap_max": None if None in gaps else max(map(abs, gaps))}))  # fmt: skip


if __name__ == "__main__":
    main()
