"""The measuring, in order: products, collectives, pairs of nodes, clocks; counters of the cards before and after."""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from shardwise.run.preflight.facts import Facts, decoded, encoded, facts_of
from shardwise.run.preflight.measurements import CounterWindow, DeviceProduct
from shardwise.run.preflight.node import LiveNode
from shardwise.run.preflight.orders import orders_for
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import counters_of
from shardwise.run.preflight.readers.nccl_log import KEEP
from shardwise.run.preflight.storage import storage_rates
from shardwise.run.runtime.preflight.collectives import Groups, measured_collectives, measured_pairs
from shardwise.run.runtime.preflight.products import product_facts
from shardwise.run.runtime.preflight.ranks import Ranks, clock_offsets, everyone, joined_ranks, to_first

MOST_LOG = 2**20


def facts_of_all(
    node: LiveNode, plan: PlannedJob | None, look: Callable[[LiveNode], object], *, measure: bool,
    storage: Path | None, seconds: float,
) -> list[Facts]:  # fmt: skip
    """Of every node, on the first rank; empty on the others. `look`: asks a node everything that is to be known. A
    ConnectionError where ranks do not find each other, or lose each other."""
    try:
        return _told_by_all(node, plan, look, measure, storage, seconds)
    except RuntimeError as error:
        said = " ".join(str(error).split())[:160]
        raise ConnectionError(
            f"ranks: not all came, or one was lost ({said}); is every node reachable, over the interface of "
            "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME?"
        ) from error


def _told_by_all(
    node: LiveNode, plan: PlannedJob | None, look: Callable[[LiveNode], object], measure: bool, storage: Path | None,
    seconds: float,
) -> list[Facts]:  # fmt: skip
    with _nccl_tells(measure) as log, joined_ranks(seconds) as ranks:
        node.host = ranks.hosts[ranks.rank]
        node.measured.world, node.measured.local_world = ranks.world, ranks.local_world
        if measure:
            _measure(node, ranks, plan, storage, seconds)
        node.measured.clock_offsets_s = clock_offsets(ranks)
        mine = b""
        if ranks.leads_node:
            node.measured.nccl_log = _log_lines(log)
            look(node)
            mine = encoded(facts_of(node))
        said = to_first(mine)
        return [decoded(each, "facts") for each in said if each]


def _measure(node: LiveNode, ranks: Ranks, plan: PlannedJob | None, storage: Path | None, seconds: float) -> None:
    start = time.monotonic()
    end = start + seconds
    before = counters_of(node.fresh()) if ranks.leads_node else {}
    counted = time.monotonic()
    said = _of_node(ranks, msgspec.json.encode(product_facts(ranks.device)))
    found = node.measured
    found.products = [msgspec.json.decode(each, type=DeviceProduct) for each in said]
    groups: Groups = {}
    orders = orders_for(plan, ranks.world, ranks.device.partition(":")[0]) if ranks.world > 1 else []
    found.collectives = measured_collectives(orders, ranks, end, ranks.device, groups)
    found.pairs = measured_pairs(ranks, end, ranks.device, groups)
    if ranks.leads_node:
        found.counters = CounterWindow(
            before=before, after=counters_of(node.fresh()), seconds=time.monotonic() - counted
        )
        if storage is not None:
            found.storage = storage_rates(storage, seconds / 4)
    found.seconds = time.monotonic() - start


def _of_node(ranks: Ranks, text: bytes) -> list[bytes]:
    said = everyone(text)
    return [said[rank] for rank in ranks.of(ranks.hosts[ranks.rank])]


@contextmanager
def _nccl_tells(measure: bool) -> Iterator[Path | None]:
    """NCCL writes what it takes into a file of its own, unless the user sends its words elsewhere."""
    if not measure or "NCCL_DEBUG" in os.environ or "NCCL_DEBUG_FILE" in os.environ:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="shardwise-") as folder:
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/nccl"}
        try:
            yield Path(folder) / "nccl"
        finally:
            del os.environ["NCCL_DEBUG"], os.environ["NCCL_DEBUG_FILE"]


def _log_lines(log: Path | None) -> str:
    if log is None or not log.is_file():
        return ""
    with log.open(encoding="utf-8", errors="replace") as file:
        return "\n".join(line.rstrip() for line in file.read(MOST_LOG).splitlines() if re.search(KEEP, line))
