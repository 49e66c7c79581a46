"""Step times over a slow link: dense all-reduce, torch's PowerSGD hook and our strategies, in one run.

Four gloo ranks, each in a network namespace of its own, joined by links of `--rate`; a step is one backward pass of a
small network and its exchange. Bytes are read off each rank's interface and stand beside those of the strategy's trace:
headers and acknowledgements are the difference. Needs root; says so and ends with 0 where it cannot run. `--json` ends
with one line.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from shardwise.plugins import sync
from shardwise.plugins.sync._named import strategy_named
from shardwise_lab.build import standing
from shardwise_lab.cables import host_address
from shardwise_lab.emulated import emulated_of
from shardwise_lab.inside import enter
from shardwise_lab.knobs import Knobs, card_rate_of
from shardwise_lab.probe import allowed

RANKS, PORT, RANK_OF_FACTORS = 4, 29_517, 4
DENSE, HOOK = "dense all-reduce (DDP)", f"torch's PowerSGD hook, rank {RANK_OF_FACTORS}"
OURS = (f"power_sgd,rank={RANK_OF_FACTORS}", "mem_sgd", "double_squeeze,compressor=sign", "dsgd", "local_sgd,every=4")
Step = Callable[[], None]
Trace = Callable[[], int]
"""bytes this rank should have sent so far"""


def sent_bytes(device: str = "eth0") -> int:
    """Bytes the interface has sent, headers and acknowledgements included."""
    lines = Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.strip().startswith(f"{device}:"))
    return int(line.split(":")[1].split()[8])


def network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
    )


def prepared(method: str, width: int) -> tuple[Step, Trace]:
    model = network(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    wrapped: nn.Module = model
    count = sum(p.numel() for p in model.parameters())
    steps = [0]

    def dense_bytes() -> int:
        return round(steps[0] * 2 * (RANKS - 1) / RANKS * 4 * count)

    def factor_bytes() -> int:
        sizes = [2 * width * RANK_OF_FACTORS + width for p in model.parameters() if p.dim() == 2]
        return round(steps[0] * 2 * (RANKS - 1) / RANKS * 4 * sum(sizes))

    trace: Trace = dense_bytes
    if method in (DENSE, HOOK):
        # one bucket: with several, the hook starts its sums in the order in which they end, which gloo mixes up
        ddp = DistributedDataParallel(model, bucket_cap_mb=256)
        if method == HOOK:
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=RANK_OF_FACTORS, start_powerSGD_iter=2)
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            trace = factor_bytes
        wrapped = ddp
    else:
        synced = sync.wrap(model, optimizer, strategy_named(method), exact=False)
        trace = lambda: sum(event.sent_by(dist.get_rank()) for event in synced.trace)  # noqa: E731
    draw = torch.Generator().manual_seed(dist.get_rank())

    def step() -> None:
        optimizer.zero_grad()
        x = torch.randn(4, width, generator=draw)
        (wrapped(x) - x).square().mean().backward()
        optimizer.step()
        steps[0] += 1

    return step, trace


def measured(method: str, width: int, steps: int) -> dict[str, Any]:
    """Of this rank; the first four steps settle what a method does only once."""
    step, trace = prepared(method, width)
    for _ in range(4):
        step()
    dist.barrier()
    before, traced, start = sent_bytes(), trace(), time.perf_counter()
    for _ in range(steps):
        step()
    seconds = time.perf_counter() - start
    dist.barrier()
    return {"step_s": seconds / steps, "wire_bytes": (sent_bytes() - before) / steps,
            "trace_bytes": (trace() - traced) / steps}  # fmt: skip


def rank(index: int, host: str, methods: list[str], width: int, steps: int, folder: Path) -> None:
    enter(host)
    os.environ.update(GLOO_SOCKET_IFNAME="eth0", MASTER_ADDR=host_address(0), MASTER_PORT=str(PORT))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=index, world_size=RANKS)
    found = {method: measured(method, width, steps) for method in methods}
    (folder / f"{index}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()


def ran(methods: list[str], width: int, steps: int, rate: str) -> list[dict[str, Any]]:
    """One entry per method: the slowest rank's step, the busiest one's bytes."""
    fabric = emulated_of("star4", Knobs(card_bytes_per_s=card_rate_of(rate)))
    with standing(fabric) as built, tempfile.TemporaryDirectory() as name:
        folder, children = Path(name), []
        for index, host in enumerate(built.hosts):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    rank(index, host, methods, width, steps, folder)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}")
        by_rank = [json.loads((folder / f"{i}.json").read_text(encoding="utf-8")) for i in range(RANKS)]
    found = []
    for method in methods:
        most = {key: max(each[method][key] for each in by_rank) for key in ("step_s", "wire_bytes", "trace_bytes")}
        found.append({"method": method, **most, "wire_over_trace": most["wire_bytes"] / most["trace_bytes"]})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rate", default="100 Mbps", help="of each link")
    parser.add_argument("--width", type=int, default=512, help="of three square matrices")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--methods", default="", help="some of them, by ';'")
    options = parser.parse_args()
    can = allowed()
    why = "; ".join(can.missing) if can.missing or can.root else "root: network namespaces need it"
    if why:
        print(f"skipped: {why}")
        if options.json:
            print(json.dumps({"skipped": why}))
        return
    methods = options.methods.split(";") if options.methods else [DENSE, HOOK, *OURS]
    found = ran(methods, options.width, options.steps, options.rate)
    base = found[0]["step_s"]
    for each in found:
        print(f"{each['method']:34} {1e3 * each['step_s']:8.1f} ms  {base / each['step_s']:6.2f} x  "
              f"{each['wire_bytes'] / 1e3:10,.1f} kB on the wire  {each['trace_bytes'] / 1e3:10,.1f} kB traced  "
              f"{each['wire_over_trace']:.3f}")  # fmt: skip
    if options.json:
        print(json.dumps({"rate": options.rate, "ranks": RANKS, "parameters": 3 * options.width * (options.width + 1),
                          "methods": found}))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
