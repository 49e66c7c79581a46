"""Command lines whose answers are checked against the schema of their verb, and the files they read."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "auto_gpt.py"
RUN = "config.json --on 2xh100 --seq 16 --global-batch 4 --micro 1"
TRAINED = {
    "run": [f"run {RUN} --dp 2 --steps 3 --device cpu --checkpoints kept --json"],
    "verify": [f"verify {RUN} --dp 2 --json"],
    "checkpoints": ["checkpoints kept --json", "checkpoints kept --verify --keep 1 --json"],
    "trace": ["trace small.py --world 2 --on 2xh100 --json"],
    "auto": [f"auto {EXAMPLE} --on 2xh100 --fix tp=2 --json",
             f"auto {EXAMPLE} small.py --on 2xh100 --fix tp=2 --json"],
    "prove": [f"verify {EXAMPLE} tp=2 --steps 2 --json"],
}  # fmt: skip
"""verb -> command lines, in an order in which each finds what it needs"""
SMALL = b"""import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build():
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)))
    return model, torch.optim.AdamW(model.parameters())


def batch():
    return torch.zeros(8, 64)


def step(model, optimizer, batch):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OTHERS = (
    "plan gpt2 --on 4xv100 --sync psgd,local_sgd --top 1 --json",
    "plan gpt2 --on 4xv100 --global-batch 32 --top 1 --joint --pp 4 --json",
    "plan gpt2 --on 4xv100 --top 1 --measure 2 --measure-with \"printf '{\\\"step_s\\\": 0.%s}' {tp}\" --json",
    "size --chinchilla --flops 1e24 --json", "size llama-3-8b --tokens 1T --within '30 d' --mfu 0.4 --json",
    "preflight --list --json", "preflight llama-3-8b --on 8xh100 --tp 3 --json",
    "compare gpt2 --on 8xh100 --policy fsdp --lengths uniform,low=100,high=900 --json",
    "sweep bert-large --on dgx-v100 --over gpus=8:16 --policy ddp,micro=4 --sync psgd,dsgd --json",
    "simulate llama-3-8b --on 8xh100 --pp 4 --global-batch 32 --spans --jitter 0.05 --steps 20 --json",
    "fabric gpt2 --on dgx-h100:16 --what-if --json", "fabric expect nccl.txt --on dgx-h100:16 --json",
    "sync list --json", "sync simulate local_sgd --steps 200 --lr 100 --json",
    "plan mixtral-8x7b --on 16xh200 --json", "plan gpt-3-175b --on 8xh100 --json",
    "size llama-3-8b --on 8xh200 --tokens 10B --json",
    "posttrain llama-3.1-8b --on 8xh100 --prompts 32 --group 8 --lengths 600,2048 --json",
    "operate bert-large --on 2x8xh100 --tokens 1T --runs 20 --failures rsc-1 --json",
    "preflight gpt2 --on dgx-h100:8 --gather facts.json --json", "why olmo-run.log --json",
    "why clocks.csv job.sqlite --json",
    "watch broken --once --json", "why records --json",
    "size --max batch bert-large --on 4xv100 --fix dp=4 --json",
    "compare bert-large --on 8xa100-80 --policy ddp --policy fsdp --json",
    "sweep gpt2 --on 8xa100-80 --over micro=1:2 --policy fsdp --json",
    "estimate deepseek-v3 --on dgx-h100:256 --pp 8 --ep 32 --json", "estimate gpt2 --on 8xh100 --tp 5 --json",
    "simulate gpt2 --on 4xv100 --pp 2 --json", "fabric bert-large --on dgx-a100:16 --json",
    "calc collective all_to_all '64 MB' --on dgx-a100:64 --json", "lab list --on star8 --json",
    "lab down --dry-run --json",
    "lab up two-leaves --rate '10 Mbps' --dry-run --json", "lab demo gossip --dry-run --json",
    "search stages gpt2 --on 4xv100 --pp 4 --json",
    "search gpt2 --on 4xv100 --pp 4 --budget 300 --json", "catalog layouts gpt-oss --json",
    "search cuts gpt2 --block mlp --on 4xv100 --tp 4 --json",
    "sync cost local_sgd --model bert-large --on dgx-h100:16 --json",
    "learn olmo-run.log --model llama-3-8b --on 8xh100 --zero 3 --out learned.toml --json",
    "validate --data runs.csv --json -", "calibrate --from trace.json --out three.toml --on 8xh100 --json",
    "export gpt2 --on 4xv100 --to nanotron --json",
    "place bert-large --on dgx-h100:64 --topology site-ib.txt --budget 100 --json",
    "check ds.json --model gpt2 --on 4xv100 --json", "catalog models gpt2 --json", "catalog gpus h200 --json",
    "catalog clusters 2x8xh100 --json", "catalog programs deepspeed --json", "calc roofline dgx-a100:64 --json",
    "calc mfu llama-3-8b --tps 9000 --on h100 --json", "calc batch --global 64 --seq 1024 --dp 8 --micro 1 --json",
    "serve --list --json", "mcp --list --json", "catalog --json",
)  # fmt: skip
"""of verbs that neither train nor trace"""


def files() -> dict[str, bytes]:
    """What the command lines read."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "importers")]
    from fuzz.samples import samples

    settings = b'{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    return {**samples(), "ds.json": settings, "small.py": SMALL, **_records()}


def _records() -> dict[str, bytes]:
    """Of a run that is well and of one that is not."""
    from made_records import MadeRun

    lost = "rank 0: step 81, all_reduce over dp failed; no sign of rank 1"
    well = MadeRun(hot=0.1, predicted=(0.1, 0.09, 0.2))
    made = {"records": well, "broken": MadeRun(slow={2: 2.0}, ends={0: lost, 1: None})}
    return {f"{folder}/{name}": b"\n".join(rows) + b"\n" for folder, run in made.items()
            for name, rows in run.lines().items()}  # fmt: skip
