"""Two lines make a PyTorch script communicate less: `torchrun --nproc-per-node 4 examples/sync_two_lines.py`.

Everything but the two marked lines is an ordinary training script: any module, any optimizer, any process group.
"""

import torch
import torch.distributed as dist
from torch import nn

from shardwise.plugins import sync

STEPS = 200


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    teacher = torch.randn(16, 1, generator=torch.Generator().manual_seed(7))
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    strategy = sync.strategy("local_sgd", every=8)  # line one: which strategy
    synced = sync.wrap(model, optimizer, strategy)  # line two: optimizer.step() now communicates

    for _ in range(STEPS):
        inputs = torch.randn(32, 16)
        loss = ((model(inputs) - inputs @ teacher) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    synced.average()  # the mean model at every worker
    sent = sum(event.sent_by(rank) for event in synced.trace)
    dense = (
        STEPS
        * sync.strategy("psgd").cost(synced.comm.layout, sync.FlatNetwork(0.0, 1.0), dist.get_world_size()).sent_bytes
    )
    if rank == 0:
        print(f"loss {loss.item():.4f}; sent {sent / 1e3:,.0f} kB, a mean gradient at every step {dense / 1e3:,.0f} kB")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
