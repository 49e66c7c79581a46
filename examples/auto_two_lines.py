"""Two lines split a model over the ranks of your own script: `torchrun --nproc-per-node 2 examples/auto_two_lines.py`.

Everything but the two marked lines is an ordinary training script; the model is that of auto_gpt.py beside it.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

import shardwise

sys.path.insert(0, str(Path(__file__).parent))
from auto_gpt import GPT, SAMPLES, TOKENS, WORDS

STEPS = 5


def main() -> None:
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    torch.manual_seed(0)  # the same weights everywhere: each rank keeps its share of them
    model, tokens = GPT(), torch.randint(0, WORDS, (SAMPLES, TOKENS))

    fix = [os.environ.get("FIX", "tp=2")]
    plan = shardwise.auto_plan(model, tokens, on=f"{ranks}xh100", fix=fix)  # line one: the fastest split
    model = shardwise.parallelize(model, plan)  # line two: this rank's share of it

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    own = tokens.chunk(plan.degrees.dp)[dist.get_rank() // plan.degrees.tp]  # ranks of one tp share their samples
    for _ in range(STEPS):
        logits = model(own)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), own[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    mean = loss.detach() / ranks
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"{plan.degrees.text}: loss {mean.item():.6f}")
    dist.barrier()  # nobody leaves while another still talks
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
