"""Real processes: torch is imported once, then the ranks fork and run every example in turn.

Called as `ranks.py FOLDER first` (one example of each strategy) or `ranks.py FOLDER all`; rank r leaves FOLDER/r.pt
with parameters, traces and the bytes it handed to the network, counted where torch takes them, not where the strategy
reports them.
"""

import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from shardwise.plugins import sync
from sync import task

SMALL = 3
"""ranks of the second round, in a group of their own"""


class Counter:
    """Bytes of every message this process sends."""

    def __init__(self) -> None:
        self.bytes = 0
        self.inner = dist.batch_isend_irecv
        dist.batch_isend_irecv = self

    def __call__(self, ops):
        self.bytes += sum(op.tensor.nbytes for op in ops if op.op is dist.isend)
        return self.inner(ops)


def run(strategy, counter: Counter, rank: int, group=None, *, exact: bool = True, optimizer_fn=None):
    model = task.model_fn()
    if rank > 0:
        with torch.no_grad():
            for p in model.parameters():
                p.add_(rank)  # the first worker's parameters must win
    before = counter.bytes
    optimizer = (optimizer_fn or task.optimizer_for(strategy))(list(model.parameters()))
    synced = sync.wrap(model, optimizer, strategy, group=group, exact=exact)
    for step in range(task.STEPS):
        optimizer.zero_grad()
        inputs, targets = task.batch_fn(rank, step)
        task.loss_fn(model(inputs), targets).backward()
        optimizer.step()
    if strategy.name == "dsgd" and strategy.overlap:
        synced.state["mixing"].wait()
    x = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return {"x": x, "trace": synced.trace, "wire": counter.bytes - before}


def train(model, optimizer, rank: int) -> torch.Tensor:
    for step in range(task.STEPS):
        optimizer.zero_grad()
        inputs, targets = task.batch_fn(rank, step)
        task.loss_fn(model(inputs), targets).backward()
        optimizer.step()
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().reshape(-1) for p in whole])


def hooked(strategy, rank: int) -> torch.Tensor:
    """The strategy as DistributedDataParallel's communication hook."""
    model = task.model_fn()
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(*sync.ddp_hook(strategy))
    return train(ddp, task.optimizer_for(strategy)(list(model.parameters())), rank)


def sharded(rank: int, *, hooked: bool) -> torch.Tensor:
    """FSDP2 over pairs of ranks; the two pairs are joined by HSDP itself, or by the strategy's hook."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = task.model_fn()
    for module in [*(m for m in model if isinstance(m, torch.nn.Linear)), model]:
        fully_shard(module, mesh=mesh["shard"] if hooked else mesh)
        if hooked:
            module.set_all_reduce_hook(sync.fsdp_hook(sync.strategy("psgd"), mesh["replicate"].get_group()))
    return train(model, torch.optim.SGD(model.parameters(), lr=0.05), rank)


def more(counter: Counter, rank: int):
    """Another number of workers, another optimizer, the library's all-reduce, torch's own wrappers."""
    small = dist.new_group(list(range(SMALL)))
    found = {}
    for name in task.FIRST if rank < SMALL else ():
        if not name.startswith("hierarchical"):
            found[f"{name}/3"] = run(task.EXAMPLES[name], counter, rank, small)
    for name in task.FAMILIAR:
        found[f"{name}/library"] = run(task.EXAMPLES[name], counter, rank, exact=False)
        found[f"{name}/adamw"] = run(task.EXAMPLES[name], counter, rank, optimizer_fn=task.adamw)
    found["ddp"] = {name: hooked(task.EXAMPLES[name], rank) for name in task.HOOKED}
    found["fsdp"] = {"native": sharded(rank, hooked=False), "hooked": sharded(rank, hooked=True)}
    return found


def work(rank: int, folder: Path, which: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), task.WORKERS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=task.WORKERS)
    counter, found = Counter(), {}
    for name in task.FIRST if which == "first" else task.EXAMPLES:
        found[name] = run(task.EXAMPLES[name], counter, rank)
    if which == "all":
        found |= more(counter, rank)
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    folder, children = Path(sys.argv[1]), []
    for rank in range(task.WORKERS):
        child = os.fork()
        if child == 0:
            try:
                work(rank, folder, sys.argv[2])
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main())
