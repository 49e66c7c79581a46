"""DeepSpeed's own configuration class; prints what it makes of a file. `python parse_deepspeed.py FILE RANKS`"""

import json
import sys

import deepspeed.comm as dist
from deepspeed.runtime.config import DeepSpeedConfig

file, ranks = sys.argv[1:]
dist.get_rank, dist.get_world_size = lambda *_: 0, lambda *_: int(ranks)
dist.is_initialized = lambda *_: True
with open(file) as text:
    found = DeepSpeedConfig(json.load(text))
offload = found.zero_config.offload_optimizer
print(json.dumps({
    "train_batch_size": found.train_batch_size, "micro": found.train_micro_batch_size_per_gpu,
    "steps": found.gradient_accumulation_steps, "stage": int(found.zero_optimization_stage),
    "overlap": bool(found.zero_config.overlap_comm), "ratio": offload.ratio if offload else None,
    "device": str(getattr(offload.device, "value", offload.device)) if offload else "none",
    "bf16": found.bfloat16_config.enabled,
}))  # fmt: skip
