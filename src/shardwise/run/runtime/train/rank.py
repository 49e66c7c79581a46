"""One rank of a run: joins the others, trains, and says what went wrong.

`python -m shardwise.run.runtime.train.rank ASKED ANSWER LISTENING` is a rank that begins afresh, with the numbers
of the launcher's open files.
"""

import datetime
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import msgspec
import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore

from shardwise.measured.record.writer import say
from shardwise.refusal import is_refusal
from shardwise.run.runtime.checkpoints.agree import AgreedRefusal
from shardwise.run.runtime.parallel.comm import RankComm
from shardwise.run.runtime.rollout.bridge import Bridge
from shardwise.run.runtime.train.ending import CHECK_FAILED, NOTICED_S, StopRequest, TrainingResult, stop_requests
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.records import keep_collectives
from shardwise.run.runtime.train.task import TrainingOrder
from shardwise.run.runtime.train.told import teller

INTERRUPTED = 130
BAD_INPUT = 2
FAILED = 3
"""exit code of a rank whose peers are gone or silent"""


def train(order: TrainingOrder, listening: int | None = None) -> TrainingResult:
    """This rank's whole run; joins the others by the environment that torchrun or our launcher set. `listening`: an
    open socket for the store they meet at."""
    torch.set_num_threads(1 if order.settings.device == "cpu" else torch.get_num_threads())
    device = torch.device(order.settings.device)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    bridge: Bridge | None = None
    with stop_requests() as asked:
        if ranks > 1:
            keep_collectives(order.settings.records)
            wait = datetime.timedelta(seconds=order.settings.timeout_s)
            bridge = join_ranks(order, "nccl" if device.type == "cuda" else "gloo", wait, listening)
            if bridge is not None and bridge.rank >= order.task.policy.gpus:
                return _rolled_out(order, device, bridge)
        trainer = _trainer(order, device, bridge, asked)
        try:
            result = _resumed_and_told(trainer)
        except RuntimeError as error:
            if ranks == 1:
                raise
            why = _explained(trainer, error)
            if trainer.records is not None:
                trainer.records.lost(why)
            raise ConnectionError(why) from None
        except AgreedRefusal:
            _part()
            raise
        finally:
            trainer.release()
    _part()
    return result


def _part() -> None:
    """All ranks do: the interpreter would end in the middle of the threads of a process group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _resumed_and_told(trainer: Trainer) -> TrainingResult:
    done = trainer.resume()
    if not trainer.leads:
        return trainer.run()
    if done:
        say(f"resumed after step {done}")
    with teller(trainer.settings, done) as tell:
        result = trainer.run(tell)
    if tell.unwritten:
        unwritten = (*result.unwritten, *tell.unwritten)
        result = replace(result, unwritten=unwritten, code=result.code or CHECK_FAILED)
    if text := result.text():
        say(text)
    return result


def _trainer(order: TrainingOrder, device: torch.device, bridge: Bridge | None, asked: StopRequest) -> Trainer:
    if order.rollout is None:
        return Trainer(order, device, asked)
    from shardwise.run.runtime.rollout.trainer import PosttrainTrainer

    alone = Bridge(HashStore(), 0, 1, datetime.timedelta(seconds=order.settings.timeout_s))
    return PosttrainTrainer(order, device, bridge or alone, asked)


def _rolled_out(order: TrainingOrder, device: torch.device, bridge: Bridge) -> TrainingResult:
    """The whole run of a rank that does not train."""
    from shardwise.run.runtime.rollout.server import RolloutServer

    try:
        RolloutServer(order, device, bridge).run()
    except RuntimeError as error:
        said = re.sub(r"^\[\S*\] ", "", str(error).splitlines()[0])[:120]
        raise ConnectionError(f"rank {bridge.rank}: a message of the rollout failed: {said}") from None
    _part()
    return TrainingResult(lines=[])


def join_ranks(order: TrainingOrder, backend: str, wait: datetime.timedelta, listening: int | None) -> Bridge | None:
    """torchrun's store outlives a restart of the ranks, and with it the addresses of the dead, so every attempt keeps
    its keys apart. Ranks that train and ranks that roll out are worlds of their own, with a bridge between them."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    leads = rank == 0 and not agents
    store = TCPStore(*address, ranks, is_master=leads, timeout=wait, master_listen_fd=listening if leads else None)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    met, trains = PrefixStore(f"attempt-{attempt}", store), order.task.policy.gpus
    side, first, size = ("trainer", 0, trains) if rank < trains else ("rollout", trains, ranks - trains)
    if order.rollout is None or not order.rollout.ranks:
        side, first, size = "all", 0, ranks
    dist.init_process_group(backend, store=PrefixStore(side, met), rank=rank - first, world_size=size, timeout=wait)
    return None if order.rollout is None else Bridge(PrefixStore("bridge", met), rank, ranks, wait)


def join_replica(order: TrainingOrder, listening: int) -> None:
    """The other ranks of one replica, by the environment that our launcher set."""
    torch.set_num_threads(1)
    if int(os.environ["WORLD_SIZE"]) > 1:
        join_ranks(order, "gloo", datetime.timedelta(seconds=order.settings.timeout_s), listening)


def _explained(trainer: Trainer, error: RuntimeError) -> str:
    """Which message of which step did not come through, and which ranks did not even notice."""
    store = dist.distributed_c10d._get_default_store()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    where = f"step {trainer.step + 1}, {told(trainer.engine.world.comm)}"
    # without the place in torch's own sources that some begin with
    said = re.sub(r"^\[\S*\] ", "", str(error).splitlines()[0])[:120]
    text = f"rank {rank}: {where} failed: {said}"
    if trainer.asked.asked:
        return text
    silent = _silent(store, rank, ranks, where)
    return f"{text}; no sign of rank {', '.join(map(str, silent))}" if silent else text


def _silent(store: Store, rank: int, ranks: int, where: str) -> list[int]:
    """Who did not notice. The store is the first rank's: if that one stands still it does not answer, and nothing that
    asks it comes back."""
    found: list[int] = []

    def ask() -> None:
        try:
            store.set(f"failed/{rank}", where)
            time.sleep(NOTICED_S)
            found.extend(other for other in range(ranks) if not store.check([f"failed/{other}"]))
        except RuntimeError:
            pass
        answered.set()

    answered = threading.Event()
    threading.Thread(target=ask, daemon=True).start()
    return found if answered.wait(3 * NOTICED_S) else [0]


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


def launched(order: TrainingOrder, answer: int, listening: int) -> int:
    """A rank of our own launcher: its exit code. The first one writes the result to the open file `answer`."""

    def trained() -> None:
        result = train(order, listening)
        if os.environ["RANK"] == "0":
            # not JSON, which has no word for a loss that is not a number
            with open(answer, "wb", closefd=False) as file:
                file.write(msgspec.msgpack.encode(result))

    return code_of(trained)


def code_of(work: Callable[[], None]) -> int:
    """A rank's exit code; what was wrong is said."""
    rank = os.environ["RANK"]
    try:
        work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except ConnectionError as error:
        give_up(error)
    except AgreedRefusal as error:
        if rank == "0":
            print(f"error: {error}", file=sys.stderr, flush=True)
        return BAD_INPUT
    except (ValueError, OSError) as error:
        if isinstance(error, ValueError) and not is_refusal(error):
            raise
        print(f"error: rank {rank}: {error}", file=sys.stderr, flush=True)
        return BAD_INPUT
    return 0


def main(asked: int, answer: int, listening: int) -> int:
    # not read on from where another rank has come to: they share the file's place
    content = os.pread(asked, os.fstat(asked).st_size, 0)
    return launched(msgspec.json.decode(content, type=TrainingOrder), answer, listening)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
