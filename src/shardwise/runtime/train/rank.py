"""What torchrun starts on every rank: `python -m shardwise.runtime.train.rank ORDER.json`."""

import datetime
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from shardwise.runtime.parallel.comm import RankComm
from shardwise.runtime.train.fork import die_with_parent
from shardwise.runtime.train.lines import StepLine
from shardwise.runtime.train.loop import Trainer
from shardwise.runtime.train.task import TrainingOrder, read_order
from shardwise.runtime.train.told import teller

INTERRUPTED = 130
BAD_INPUT = 2
FAILED = 3
"""exit code of a rank whose peers are gone or silent"""


def train(order: TrainingOrder) -> list[StepLine]:
    """This rank's whole run; joins the others by the environment torchrun sets, if it did."""
    torch.set_num_threads(1 if order.settings.device == "cpu" else torch.get_num_threads())
    device = torch.device(order.settings.device)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if ranks > 1:
        _join("nccl" if device.type == "cuda" else "gloo", datetime.timedelta(seconds=order.settings.timeout_s))
    trainer = Trainer(order, device)
    try:
        done = trainer.resume()
        if done and trainer.leads:
            print(f"resumed after step {done}", file=sys.stderr, flush=True)
        lines = _told(trainer, done)
    except RuntimeError as error:
        if ranks == 1:
            raise
        raise ConnectionError(_explained(trainer, error)) from None
    if dist.is_initialized():
        dist.destroy_process_group()
    return lines


def _told(trainer: Trainer, done: int) -> list[StepLine]:
    if not trainer.leads:
        return trainer.run()
    with teller(trainer.settings, done) as tell:
        return trainer.run(tell)


def _join(backend: str, wait: datetime.timedelta) -> None:
    """By the environment torchrun sets. Its store outlives a restart of the ranks, and with it the addresses of the
    dead, so every attempt keeps its keys apart."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*address, ranks, is_master=rank == 0 and not agents, timeout=wait)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend, store=PrefixStore(f"attempt-{attempt}", store), rank=rank, world_size=ranks, timeout=wait
    )


def _explained(trainer: Trainer, error: RuntimeError) -> str:
    """Which message of which step did not come through, and which ranks did not even notice."""
    store = dist.distributed_c10d._get_default_store()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    where = f"step {trainer.step + 1}, {told(trainer.engine.world.comm)}"
    text = f"rank {rank}: {where} failed: {str(error).splitlines()[0][:120]}"
    try:
        store.set(f"failed/{rank}", where)
        time.sleep(2.0)
        silent = [other for other in range(ranks) if not store.check([f"failed/{other}"])]
    except RuntimeError:
        return text
    return f"{text}; no sign of rank {', '.join(map(str, silent))}" if silent else text


def told(comm: RankComm) -> str:
    now = comm.current
    if not now:
        return "no message under way"
    ranks = ", ".join(map(str, now["ranks"]))
    return f"{now['op']} over {now['axis']} (ranks {ranks}) of {now['bytes']:,} bytes in the {now['phase']}"


def give_up(error: ConnectionError) -> NoReturn:
    """At once: the thread of a checkpoint under way would wait for ranks that do not answer."""
    print(error, file=sys.stderr, flush=True)
    os._exit(FAILED)


def main(path: str) -> None:
    die_with_parent()
    order = read_order(Path(path))
    try:
        lines = train(order)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ConnectionError as error:
        give_up(error)
    except ValueError as error:
        print(f"rank {os.environ.get('RANK', '0')}: {error}", file=sys.stderr, flush=True)
        sys.exit(BAD_INPUT)
    if os.environ.get("RANK", "0") == "0":
        Path(path).with_name("result.json").write_bytes(msgspec.json.encode(lines))


if __name__ == "__main__":
    main(sys.argv[1])
