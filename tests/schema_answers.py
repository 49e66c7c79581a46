"""Command lines whose answers tell a verb's JSON: those its schema is made of, and others it is held against."""

import sys
from pathlib import Path

from shardwise import catalog
from shardwise.spec.software import stack_names

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "auto_gpt.py"
RUN = "config.json --on 2xh100 --seq 16 --global-batch 4 --micro 1"
FSDP = "llama-3-8b --on 8xh100 --zero 3"
PIPE = "llama-3-8b --on 8xh100 --pp 4 --global-batch 32"
ILLEGAL = "llama-3-8b --on 8xh100 --tp 3"
FULL = "llama-3-70b --on 8xh100 --tp 8 --global-batch 8"
CANNOT = "a policy that cannot run"
ASKED = {
    "plan": {
        "policies that fit": [
            "plan llama-3-8b --on 8xh100 --json", "plan mixtral-8x7b --on dgx-h100:16 --tokens 1T --why --json",
            "plan llama-3-8b --on 8xh100 --top 2 --why-not tp=8 --why-not tp=3 --fix 'tp<=4' --json",
            "plan gpt2 --on 4xv100 --pareto --json", "plan gpt2 --on 4xv100 --sync psgd,local_sgd --top 1 --json",
            "plan gpt2 --on 4xv100 --global-batch 32 --top 1 --joint --pp 4 --json",
            "plan gpt2 --on 4xv100 --global-batch 32 --top 1 --joint --mixed 4xa100-40 --link '100 Gbps' --json",
            "plan gpt2 --on 4xv100 --top 1 --measure 2 --measure-with \"printf '{\\\"step_s\\\": 0.%s}' {tp}\" --json",
            "plan gpt2 --on 4xv100 --top 1 --lengths uniform,low=100,high=900 --packing on --json",
        ],
        "nothing fits": [
            "plan llama-3-70b --on 1xh100 --json", "plan llama-3-405b --on 8xl40s --tp 8 --joint --json",
        ],
    },
    "size": {
        "tokens, time, money": [
            "size gpt2 --on 4xv100 --json",
            "size llama-3-8b --on 16xh100 --tokens 1B --within '30 d' --budget 500k --json",
        ],
        "at a stated utilization": ["size llama-3-8b --tokens 1T --within '30 d' --mfu 0.4 --json"],
        "what a budget should train": [
            "size --chinchilla --flops 1e24 --json", "size --chinchilla --budget '1M USD' --json",
        ],
    },
    "operate": {"": [
        "operate gpt2 --on 2x8xh100 --tokens 100B --runs 20 --json",
        "operate gpt2 --on 2x8xh100 --tokens 100B --runs 20 --failures off --json",
        "operate gpt2 --on 2x8xh100 --tokens 100B --runs 20 --spares 1 --save memory --json",
    ]},
    "preflight": {
        "nodes": [
            "preflight --gather facts.json --json", "preflight --only host --out . --json",
            "preflight --on 8xh100 --gather facts.json --json",
            "preflight llama-3-8b --on dgx-h100:16 --tp 8 --gather facts.json --json",
        ],
        "items": ["preflight --list --json"],
        CANNOT: ["preflight llama-3-8b --on 8xh100 --tp 3 --json"],
    },
    "why": {"": [
        "why megatron-run.log --json", "why huggingface-run.log --json", "why torchtitan-run.log --json",
        f"why steps.csv --model {FSDP} --json", "why rank0.json --json",
        f"why rank0.json --spans --model {FSDP} --json",
        f"why rank0.json clocks.csv --model {FSDP} --json", "why job.sqlite --json",
    ]},
    "watch": {"": [
        "watch records --once --json", "watch broken --once --json", "watch megatron-run.log --once --json",
        f"watch steps.csv --once --model {FSDP} --json",
    ]},
    "doctor": {"": ["why records --json", "why broken --json"]},
    "max": {
        "sequence, batch": [
            "size --max sequence gpt2 --on 4xv100 --fix tp=4 --json",
            "size --max batch gpt2 --on 4xv100 --fix tp=4,recompute=none --json",
        ],
        "model": ["size --max model gpt2 --on 4xv100 --fix tp=4 --json"],
    },
    "compare": {"": [
        "compare llama-3-8b --on 8xh100 --policy fsdp --policy tp=8 --json",
        "compare gpt2 --on 8xh100 --on 8xh200 --policy fsdp --json",
        "compare gpt2 --on 8xh100 --policy fsdp --lengths uniform,low=100,high=900 --json",
    ]},
    "sweep": {"": [
        "sweep gpt2 --on h100 --over gpus=8:16 --policy fsdp --json",
        "sweep gpt2 --on h100 --over gpus=8:16 --policy fsdp --lengths uniform,low=100,high=900 --json",
        "sweep bert-large --on dgx-v100 --over gpus=8:16 --policy ddp,micro=4 --sync psgd,dsgd --json",
    ]},
    "estimate": {
        "a policy that can run": [
            f"estimate {FSDP} --evidence 3 --json", f"estimate {FSDP} --lengths uniform,low=100,high=900 --json",
            "estimate mixtral-8x7b --on dgx-h100:16 --ep 8 --tokens 1T --json",
            f"estimate {FULL} --json", "estimate gpt2 --on 4xv100 --offload optimizer --host-memory '1 TiB' --json",
        ],
        CANNOT: [f"estimate {ILLEGAL} --json"],
    },
    "simulate": {
        "a policy that can run": [
            f"simulate {PIPE} --json", f"simulate {PIPE} --jitter 0.05 --steps 20 --json", f"simulate {FULL} --json",
            f"simulate {PIPE} --straggler stage=2,factor=1.2 --json", f"simulate {PIPE} --spans --json",
        ],
        CANNOT: [f"simulate {ILLEGAL} --json"],
    },
    "fabric": {
        "a step": [
            "fabric gpt2 --on dgx-h100:16 --json", "fabric llama-3-8b --on dgx-h100:16 --zero 3 --what-if --json",
            "fabric llama-3-8b --on hgx-h100-roce:16 --tp 8 --packets --draws 1 --json",
        ],
        CANNOT: [f"fabric {ILLEGAL} --json"],
        "expect": ["fabric expect --on dgx-h100:16 --json", "fabric expect nccl.txt --on dgx-h100:16 --json"],
    },
    "lab": {
        "what there is": ["lab list --json", "lab list --on rails --json"],
        "what would be built": ["lab up rails --dry-run --json", "lab run --on star4 --dry-run --json"],
        "what is removed": ["lab down --dry-run --json"],
        "a demonstration": ["lab demo incast --json", "lab demo slow-link --json"],
        "chaos": ["lab chaos kill-rank --json", "lab chaos slow-link --json"],
        "a run": [
            "lab run --on star4 --sizes '64 kB' --times 1 --json", "lab run --on star4 --json -- false",
            "lab run --on star4 --train tp=2,pp=2 --times 1 --json",
            "lab run --on star4 --collective shift --connections 2 --json",
        ],
    },
    "collective": {"": [
        "calc collective all_gather 'bf16[1024,16384]' --on 8xh100 --json",
        "calc collective all_reduce '1 GB' --on dgx-h100:1024 --inner 8 --sharp --json",
    ]},
    "stages": {"a policy that can run": [f"search stages {PIPE} --json",
                                         f"search stages {PIPE} --recompute full --json"],
               CANNOT: [f"search stages {ILLEGAL} --json"]},
    "search": {"": [
        f"search {PIPE} --json --budget 500",
        "search mixtral-8x7b --on 8xh100 --ep 8 --problem experts --json --budget 500",
    ]},
    "layouts": {"": [f"catalog layouts {name} --json" for name in ("gpt-neox", "bloom", "opt", "falcon")]},
    "cuts": {"": [
        "search cuts llama-3-8b --block mlp --on dgx-h100:64 --tp 8 --json",
        "search cuts --chain 4096,16384,4096 --on 8xh100 --json",
    ]},
    "sync": {
        "list": ["sync list --json"],
        "cost": ["sync cost dsgd --model gpt2 --on dgx-h100:16 --json",
                 "sync cost psgd --model gpt2 --on 8xh100 --json"],
        "simulate": ["sync simulate local_sgd --json", "sync simulate psgd --json"],
    },
    "validate": {"": ["validate --data runs.csv --json -"]},
    "run": {"": [f"run {RUN} --dp 2 --steps 3 --device cpu --checkpoints kept --json"]},
    "verify": {"": [f"verify {RUN} --dp 2 --json"]},
    "checkpoints": {"": ["checkpoints kept --json", "checkpoints kept --verify --keep 1 --json"]},
    "trace": {"": ["trace small.py --world 2 --on 2xh100 --json"]},
    "auto": {"one program": [f"auto {EXAMPLE} --on 2xh100 --fix tp=2 --json"],
             "several": [f"auto {EXAMPLE} small.py --on 2xh100 --fix tp=2 --json"]},
    "prove": {"": [f"verify {EXAMPLE} tp=2 --steps 2 --json"]},
    "calibrate": {"": ["calibrate --from nccl.txt --out zero.toml --on 4x4xh100 --json",
                       "calibrate --from nccl.json --out one.toml --on 4x4xh100 --json",
                       "calibrate --from trace.json --out two.toml --on 8xh200 --json"]},
    "export": {
        "a policy that can run": [
            f"export {FSDP} --to torchtitan --json", "export llama-3-8b --on 8xh100 --tp 2 --pp 2 --to megatron --json",
            f"export {FSDP} --to deepspeed --out exported --json",
        ],
        CANNOT: [f"export {ILLEGAL} --to megatron --json"],
    },
    "place": {
        "a policy that can run": [
            "place llama-3-8b --on dgx-h100:64 --tp 8 --topology site-topology.conf --budget 200 --json",
            "place gpt2 --on dgx-h100:32 --pp 2 --topology site-nodes.csv --free 'n[00-06]' --budget 200 --json",
        ],
        CANNOT: ["place llama-3-8b --on dgx-h100:64 --tp 3 --topology site-topology.conf --json"],
    },
    "check": {"": ["check ds.json --model llama-3-8b --on 8xh100 --json", "check ds.json --json",
                   "check ds.json --model llama-3-70b --on 8xh100 --json"]},
    "models": {"all": ["catalog models --json"], 
               "one": ["catalog models llama-3-70b --gpu h200 --json", "catalog models mixtral-8x7b --json"]},
    "gpus": {"all": ["catalog gpus --json"], "one": [f"catalog gpus {name} --json" for name in catalog.names("gpus")]},
    "clusters": {"all": ["catalog clusters --json"], 
                 "one": ["catalog clusters dgx-h100:1024 --json", "catalog clusters 8xa100-80 --json"]},
    "programs": {"all": ["catalog programs --json"], 
               "one": [f"catalog programs {name} --json" for name in stack_names()]},
    "roofline": {"": [
        *(f"calc roofline {name} --json" for name in ("h100", "a100-80", "v100", "b200", "rtx4090", "mi300x")),
        "calc roofline dgx-h100:1024 --tp 8 --pp 8 --ffn 16k --json",
    ]},
    "mfu": {"": ["calc mfu llama-65b --tps 380 --on a100-80 --json",
                 "calc mfu gpt-3-175b --tokens 300B --gpus 1024 --time '35 d' --on a100-80 --json"]},
    "batch": {"": ["calc batch --global 2048 --seq 4096 --dp 64 --micro 2 --json",
                   "calc batch --global 2048 --seq 4096 --gpus 1024 --tp 8 --json"]},
    "serve": {
        "views": ["serve --list --json"],
        "the page as files": ["serve --export page --case '#/policy?model=llama-3-8b&on=8xh100' --json"],
    },
    "mcp": {"": ["mcp --list --json"]},
    "catalog": {"": ["catalog --json"]},
}  # fmt: skip
"""verb -> what is asked -> command lines"""
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
    "plan mixtral-8x7b --on 16xh200 --json", "plan gpt-3-175b --on 8xh100 --json",
    "size llama-3-8b --on 8xh200 --tokens 10B --json",
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
    "validate --data runs.csv --json -", "calibrate --from trace.json --out three.toml --on 8xh100 --json",
    "export gpt2 --on 4xv100 --to nanotron --json",
    "place bert-large --on dgx-h100:64 --topology site-ib.txt --budget 100 --json",
    "check ds.json --model gpt2 --on 4xv100 --json", "catalog models gpt2 --json", "catalog gpus h200 --json",
    "catalog clusters 2x8xh100 --json", "catalog programs deepspeed --json", "calc roofline dgx-a100:64 --json",
    "calc mfu llama-3-8b --tps 9000 --on h100 --json", "calc batch --global 64 --seq 1024 --dp 8 --micro 1 --json",
    "serve --list --json", "mcp --list --json", "catalog --json",
)  # fmt: skip
"""answers that no schema was made of; verbs that train, trace or need what they left are held to the first ones"""


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
