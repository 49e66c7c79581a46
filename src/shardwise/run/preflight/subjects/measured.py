"""What --measure measured: the plan's collectives, pairs of nodes, storage, products, tools that are installed."""

import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

from shardwise.cost.calibrate.profile import Point
from shardwise.fields import short
from shardwise.measured.diagnose.expect import expect
from shardwise.measured.diagnose.pairs import SLOW, Pair, diagnose
from shardwise.programs.importers import nccl_tests
from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.limits import limit
from shardwise.run.preflight.node import TIMED_OUT, Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import cards_of, compute_cards
from shardwise.run.preflight.readers.smi import gpus_of, number_of
from shardwise.run.preflight.tools import DIAGNOSTIC, TOOL_S, WRITE, all_reduce_test, write_test
from shardwise.units import time_text

_WRITE = re.compile(r"^\s*(\d{1,12})\s+(\d{1,12})\s+([\d.]{1,14})\s+([\d.]{1,14})\s+[\d.]{1,14}\s*$", re.MULTILINE)
_RESULT = re.compile(r'"status"\s*:\s*"(\w{1,12})"', re.IGNORECASE)


def collectives(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    rows = next((node.measured.collectives for node in nodes if node.measured.collectives), [])
    if not rows:
        return unknown("no ranks to measure with", "start it with torchrun, one rank a GPU")
    told = [f"{row.axis} {row.op} of {row.bytes / 2**20:.3g} MiB in {time_text(row.seconds)}" for row in rows]
    if any(row.device != "cuda" for row in rows) or plan is None:
        why = "of processors, not of GPUs" if plan is not None else "no cluster is named to hold it against"
        return unknown(f"{few(told, 2)}; {why}", "" if plan is not None else "write --on, or name a plan")
    points: list[Point] = [
        {"op": row.op, "bytes": row.bytes, "ranks": row.ranks, "nodes": row.nodes, "seconds": row.seconds}
        for row in rows
    ]
    try:
        found = expect(points, plan.cluster)
    except (ValueError, KeyError) as problem:
        return unknown(short(str(problem)))
    low = [verdict for verdict in found.verdicts if verdict.word == "low"]
    if low:
        worst = min(low, key=lambda verdict: verdict.ratio)
        row = next(each for each in rows if (each.op, each.bytes) == (worst.op, worst.bytes))
        guess = found.explanation or (found.suspects[0].level if found.suspects else worst.level)
        said = f"{row.axis} {row.op} of {row.bytes / 2**20:.3g} MiB at {worst.ratio:.0%} of the expected "
        said += (
            f"{worst.expected / 1e9:.3g} GB/s, slowest on {few(row.hosts, 2)}; {len(low)} of {len(found.verdicts)} low"
        )
        return failed(said, f"suspicious: {guess}; see slow-link")
    least = min((verdict.ratio for verdict in found.verdicts), default=1.0)
    return passed(f"{len(found.verdicts)} of the plan's collectives, the slowest at {least:.0%} of what is expected")


def slow_link(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    hosts = [node.host for node in nodes]
    told = next((node.measured.pairs for node in nodes if node.measured.pairs), [])
    pairs = [Pair(pair.a, pair.b, pair.bytes_per_s) for pair in told
             if pair.a in hosts and pair.b in hosts and pair.a != pair.b]  # fmt: skip
    if not pairs:
        return unknown("no pair of nodes was measured", "start it with torchrun on all hosts")
    if len(pairs) < 2:
        return passed(f"{pairs[0].a}-{pairs[0].b}: {pairs[0].bytes_per_s / 1e9:.3g} GB/s; one pair blames nobody")
    if plan is None or len(plan.cluster.levels) < 2:
        return _slowest(pairs)
    found = diagnose(pairs, hosts, plan.cluster)
    if found.links:
        worst = found.links[0]
        return failed(f"{worst.name}: {worst.part:.0%} of {found.reference / 1e9:.3g} GB/s, {worst.pairs} slow pairs",
                      "look at its NICs, cables and the ports they hang on")  # fmt: skip
    if found.unexplained:
        pair = found.unexplained[0]
        return warned(f"{pair.a}-{pair.b} is slow although its links are not", "look at the route (hashing)")
    return passed(f"{len(pairs)} pairs within {1 - SLOW:.0%} of {found.reference / 1e9:.3g} GB/s")


def _slowest(pairs: Sequence[Pair]) -> Finding:
    """Without a fabric to follow: the host whose pairs are all slow."""
    usual = median(pair.bytes_per_s for pair in pairs)
    slow = [pair for pair in pairs if pair.bytes_per_s < SLOW * usual]
    if not slow:
        return passed(f"{len(pairs)} pairs within {1 - SLOW:.0%} of {usual / 1e9:.3g} GB/s")
    ends = [end for pair in slow for end in (pair.a, pair.b)]
    most = max(ends, key=ends.count)
    return warned(f"{most}: {len(slow)} slow pairs, {min(pair.bytes_per_s for pair in slow) / usual:.0%} of the usual",
                  "look at its NICs; write --on to follow the fabric")  # fmt: skip


def storage(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    found = node.measured.storage
    if found is None:
        return unknown("no folder was named", "write --storage with the folder of the checkpoints")
    if found.error or found.write_bytes_per_s is None or found.read_bytes_per_s is None:
        return failed(found.error or "its rates are not reported", "make room, or name a folder that can be written")
    written, read = found.write_bytes_per_s / 1e9, found.read_bytes_per_s / 1e9
    return passed(f"writes {written:.3g}, reads {read:.3g} GB/s" + (" (from cache)" if found.cached else ""))


def products(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    found = [(f"{node.host} {each.device}", each) for node in nodes for each in node.measured.products]
    if not found:
        return unknown("torch is not here to multiply with", "run it with the job's Python")
    wrong = [name for name, each in found if not each.equal]
    if wrong:
        return failed(f"a GEMM was wrong, or gave two different results: {few(wrong)}", "drain it: silent corruption")
    slow: list[str] = []
    for kind in dict.fromkeys(each.name for _, each in found):
        alike = [(name, each) for name, each in found if each.name == kind]
        ((common, many),) = Counter(each.digest for _, each in alike).most_common(1)
        odd = [name for name, each in alike if each.digest != common]
        if odd:
            return failed(f"{few(odd)}: another result than {many} of its kind", "drain it: silent corruption")
        least = (1 - limit("measured.gemm_below_median")) * median(each.flops_per_s for _, each in alike)
        # processors share their cores with whoever else is there
        gpus = [(name, each) for name, each in alike if each.device.startswith("cuda")]
        slow += [name for name, each in gpus if len(gpus) > 2 and each.flops_per_s < least]
    if slow:
        return warned(f"slower than the others: {few(slow)}", "look at clocks, temperature and power of it")
    usual, count = median(each.flops_per_s for _, each in found), len(found)
    told = f"{count} devices" if count > 1 else "1 device"
    return passed(f"{told}, right and bitwise equal, {usual / 1e12:.3g} TFLOP/s (no proof of health)")


def benchmark(node: Node, plan: PlannedJob | None) -> Finding:
    rows = gpus_of(node)
    if isinstance(rows, Finding):
        return rows
    if len(rows) < 2:
        return unknown("one GPU: nothing to reduce over")
    printed = node.run(all_reduce_test(len(rows)), seconds=TOOL_S)
    if printed is None:
        return unknown("all_reduce_perf is not installed", "build nccl-tests")
    try:
        run = nccl_tests.parse(printed.text.encode())
    except ValueError:
        return unknown("all_reduce_perf printed no table that could be read")
    point = max(run.points, key=lambda row: float(row["bytes"]))
    if plan is None:
        return passed(f"{float(point['bytes']) / 2**20:,.0f} MiB in {time_text(float(point['seconds']))}")
    try:
        verdict = max(expect(run.points, plan.cluster).verdicts, key=lambda each: each.bytes)
    except ValueError as problem:
        return unknown(short(str(problem)))
    told = (
        f"{verdict.bytes / 2**20:,.0f} MiB at {verdict.measured / 1e9:.3g} GB/s, expected {verdict.expected / 1e9:.3g}"
    )
    return (
        failed(told, f"{verdict.level}: look at nvlink and topology above") if verdict.word == "low" else passed(told)
    )


def writes(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = compute_cards(cards_of(node))
    if not cards:
        return unknown("no RDMA NIC")
    if node.run(f"{WRITE} --version") is None:
        return unknown("ib_write_bw is not installed", "install perftest")
    slow, silent, seen = [], [], []
    for card in cards:
        printed = node.run(write_test(card.name))
        row = _WRITE.search(printed.text) if printed is not None and not printed.code else None
        rate = number_of(row[4]) if row else None
        if rate is None or card.rate is None:
            silent.append(card.name)
            continue
        seen.append(rate)
        if rate * 1e9 / 8 < limit("measured.ib_write_share") * card.rate:
            slow.append(f"{card.name} {rate:.0f} of {card.rate * 8 / 1e9:.0f} Gb/s")
    if slow:
        return failed(few(slow), "look at its PCIe link and at ACS")
    if silent:
        return unknown(f"ib_write_bw reports nothing for {few(silent)}", "run it by hand: a server, then a client")
    return passed(f"{len(seen)} NICs, {min(seen):.0f} Gb/s and more to themselves")


def diagnostic(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    printed = node.run(DIAGNOSTIC, seconds=TOOL_S)
    if printed is None:
        return unknown("dcgmi is not installed", "install DCGM (datacenter-gpu-manager)")
    words = [word.lower() for word in _RESULT.findall(printed.text)]
    if "fail" in words:
        return failed(f"{words.count('fail')} tests failed", "dcgmi diag -r 1 says which; drain the node")
    if printed.code == TIMED_OUT or not words:
        return unknown("dcgmi diag -r 1 reported no result", "is nv-hostengine running?")
    if "warn" in words:
        return warned(f"{words.count('warn')} tests warn", "dcgmi diag -r 1 says which")
    return passed(f"{words.count('pass')} tests passed")


SUBJECT = Subject("measured", 100, (
    Probe("collectives", "the plan's collectives as fast as expected", "torch.distributed", across=collectives,
         needs="measure"),
    Probe("slow-link", "pairs of nodes; the link that is slow", "torch.distributed", across=slow_link,
         needs="measure nodes"),
    Probe("storage", "writing and reading where checkpoints go", "a file in --storage", storage, needs="measure"),
    Probe("products", "the same GEMM twice, on every GPU", "torch.matmul", across=products, needs="measure"),
    Probe("nccl-tests", "all-reduce inside the node", "all_reduce_perf", benchmark, needs="measure"),
    Probe("ib-write", "each NIC to itself", "ib_write_bw", writes, needs="measure"),
    Probe("dcgm-diag", "NVIDIA's own diagnostic, level 1", "dcgmi diag -r 1 -j", diagnostic, needs="measure"),
))  # fmt: skip
