"""Laws that answers of one case must keep with answers of another, each with its tolerance.

A law takes a drawn case and the estimate of its policies, and says of each row by how much the law is broken: 0 or less
is kept, NaN is not asked.
"""

import shlex
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from json import loads
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from _metamorphic_cases import Drawn
from shardwise.programs.formats import (
    Format,
    Known,
    Launch,
    expressed,
    formats,
    gaps_of,
    read_launch,
    settled,
    version_of,
)
from shardwise.show.cli import main
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.policy import Policies
from shardwise.spec.rules import legal
from shardwise.spec.software.limits import runs
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.simulate import simulate
from shardwise.work.case import Case, case_of

Broken = NDArray[np.float64]
EXACT, SAME = 1e-9, 1e-12
PASSES = 5e-5
"""of a step whose forward and backward wait apart (for parameters of ZeRO 3, for activations on the host): what hides
is bounded for both together and shared out, so a faster forward may leave more of it to the backward"""
STAGES = 0.005
"""of a step with pipeline stages: an output and a gradient that share a card slow each other the more the sooner the
second is ready, and by how much is told for the mean stage, so a faster one slows others that are as slow as before"""
SIMULATED = 0.03
"""of a step: closed form against simulation (docs/simulate.md)"""
PRICED_ALONE, SIMULATED_EACH, EXPORTED = 3, 1, 3
"""rows of a case that are looked at one by one"""
MOST_TASKS = 4_000


@dataclass(frozen=True)
class Law:
    name: str
    states: str
    check: Callable[[Drawn, Estimate], Broken]


def _level(**scale: float) -> Callable[[Cluster, Callable[[Level], bool]], Cluster]:
    def better(cluster: Cluster, where: Callable[[Level], bool]) -> Cluster:
        levels = [
            replace(level, **{name: getattr(level, name) * by for name, by in scale.items()}) if where(level) else level
            for level in cluster.levels
        ]
        return replace(cluster, levels=tuple(levels))

    return better


def _gpu(cluster: Cluster, **fields: Any) -> Cluster:
    return replace(cluster, gpu=replace(cluster.gpu, **fields))


def _clock(cluster: Cluster, by: float) -> Cluster:
    gpu = cluster.gpu
    return _gpu(cluster, peak_flops={name: rate * by for name, rate in gpu.peak_flops.items()},
                base_clock_hz=gpu.base_clock_hz * by, boost_clock_hz=gpu.boost_clock_hz * by)  # fmt: skip


HARDWARE: dict[str, tuple[str, Callable[[Cluster, float], Cluster]]] = {
    "nvlink": ("more bandwidth inside a node", lambda c, by: _level(bandwidth=by)(c, lambda x: x.kind != "network")),
    "network": ("more bandwidth between nodes", lambda c, by: _level(bandwidth=by)(c, lambda x: x.kind == "network")),
    "latency": ("lower latency", lambda c, by: _level(latency_s=1.0 / by)(c, lambda _: True)),
    "memory": ("more memory", lambda c, by: _gpu(c, memory_bytes=c.gpu.memory_bytes * by)),
    "memory bandwidth": ("faster memory", lambda c, by: _gpu(c, memory_bandwidth=c.gpu.memory_bandwidth * by)),
    "clock": ("a higher clock", _clock),
    "host": ("faster copies to the host", lambda c, by: _gpu(
        c, pcie_bandwidth=c.gpu.pcie_bandwidth * by, host_bandwidth=c.gpu.host_bandwidth * by)),
}  # fmt: skip


def _on(case: Case, cluster: Cluster) -> Case:
    return case_of(case.model, cluster, case.job, case.stack)


def _tolerance(policies: Policies) -> Broken:
    apart = (policies.zero == 3) | (policies.offload >= 2)
    return np.where(policies.pp > 1, STAGES, np.where(apart, PASSES, EXACT))


def _never_slower(better: Callable[[Cluster, float], Cluster]) -> Callable[[Drawn, Estimate], Broken]:
    def check(drawn: Drawn, found: Estimate) -> Broken:
        again = estimate(_on(drawn.case, better(drawn.case.cluster, drawn.factor)), drawn.policies)
        slower = again.times.step_s / found.times.step_s - 1.0
        slower = slower - _tolerance(drawn.policies)
        return np.where(found.fits & ~again.fits, 1.0, slower)

    return check


def _same_memory(drawn: Drawn, found: Estimate) -> Broken:
    cluster = HARDWARE["memory"][1](drawn.case.cluster, drawn.factor)
    again = estimate(_on(drawn.case, cluster), drawn.policies)
    apart = np.abs(again.times.step_s / found.times.step_s - 1.0)
    # an allocator with more room keeps buffers longer that it would free, so the peak may rise with it
    return np.where(found.fits & ~again.fits, 1.0, apart - SAME)


def _one_is_many(drawn: Drawn, found: Estimate) -> Broken:
    """A policy by itself, and the same among the others in another order."""
    size, broken = len(drawn.policies), np.full(len(drawn.policies), np.nan)
    order = np.random.default_rng(drawn.number).permutation(size)
    shuffled = estimate(drawn.case, drawn.policies.take(order))
    broken[order] = _apart(shuffled, found, order) - SAME
    for row in order[:PRICED_ALONE]:
        alone = estimate(drawn.case, drawn.policies.take(np.array([row])))
        broken[row] = max(broken[row], float(_apart(alone, found, np.array([row]))[0]) - SAME)
    return broken


def _apart(one: Estimate, other: Estimate, rows: NDArray[np.int64]) -> Broken:
    step = np.abs(one.times.step_s / other.times.step_s[rows] - 1.0)
    return np.maximum(step, np.abs(one.memory.peak / other.memory.peak[rows] - 1.0))


def _more_replicas(drawn: Drawn, found: Estimate) -> Broken:
    """Twice the GPUs, all of them data parallel, with twice the batch: no rank needs more memory."""
    case = drawn.case
    most = int(np.prod([level.degree for level in case.cluster.levels]))
    if 2 * case.cluster.gpus > most:
        return np.full(len(drawn.policies), np.nan)
    wide = replace(case.cluster, gpus=2 * case.cluster.gpus)
    twice = Policies(**{**vars(drawn.policies), "dp": 2 * drawn.policies.dp})
    job = replace(case.job, global_batch=2 * case.job.global_batch)
    # of groups that stay as they are, or are all ranks
    several = drawn.policies.dp * drawn.policies.cp > 1  # one replica has nothing to reduce, and no buffers for it
    asked = legal(case.model, wide, job, twice) & (drawn.policies.shard_group == 0) & several
    again = estimate(case_of(case.model, wide, job, case.stack), twice)
    return np.where(asked, again.memory.peak / found.memory.peak - 1.0 - EXACT, np.nan)


def _overlap_helps(drawn: Drawn, found: Estimate) -> Broken:
    """Nothing overlapped: the step is not shorter. Scans of a plan rely on it.

    With stages it may be, by a bounded part: the last backward goes up through all of them, and on each the reduction
    beside it slows it, while without overlap the stages' reductions run at the same time behind it."""
    off = np.zeros(len(drawn.policies), dtype=np.int64)
    none = Policies(**{**vars(drawn.policies), **dict.fromkeys(("overlap_grad", "overlap_param"), off)})
    again = estimate(drawn.case, none)
    slowed = drawn.case.stack.overlap.overlap_slowdown * (drawn.policies.pp - 1.0) * found.times.reduce_s
    slower = (found.times.step_s - slowed) / again.times.step_s - 1.0
    return slower - _tolerance(drawn.policies)


def _simulated(drawn: Drawn, found: Estimate) -> Broken:
    broken = np.full(len(drawn.policies), np.nan)
    tasks = drawn.policies.pp * drawn.policies.vpp * found.work.layout.micro_batches
    for row in Random(drawn.number).sample(range(len(drawn.policies)), SIMULATED_EACH):
        if tasks[row] <= MOST_TASKS:
            step = simulate(drawn.case, drawn.policies[row]).step_s
            broken[row] = abs(step / float(found.times.step_s[row]) - 1.0) - SIMULATED
    return broken


def _exported(drawn: Drawn, _: Estimate) -> Broken:
    """What a program's file says is read back as the same policy, with the same step, and nothing is done without."""
    broken = np.full(len(drawn.policies), np.nan)
    targets = [each for each in formats().values() if each.stack == drawn.case.stack.name and each.limits is None]
    for target in targets:
        for row in Random(drawn.number).sample(range(len(drawn.policies)), min(EXPORTED, len(drawn.policies))):
            broken[row] = np.fmax(broken[row], _read_back(target, drawn, row))
    return broken


def _read_back(target: Format, drawn: Drawn, row: int) -> float:
    case, version = drawn.case, version_of(target, "")
    launch = Launch(case, settled(drawn.policies[row], case), version=version, called=case.model.name)
    try:
        if any(gap.instead is not None and gap.field not in target.own(version) for gap in gaps_of(target, launch)):
            return 1.0
        launch, _ = expressed(target, launch)
    except ValueError:
        return float("nan")  # what the file cannot state is refused by name
    with TemporaryDirectory() as folder:
        files = target.write(launch).files
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        _, read = read_launch([Path(folder) / name for name in files], Known(layers=case.model.layers))
    if settled(read.policy, case) != launch.policy:
        return 1.0
    again = estimate(case, Policies.of([settled(read.policy, case)]))
    own = estimate(case, Policies.of([launch.policy]))
    return abs(float(again.times.step_s[0] / own.times.step_s[0]) - 1.0) - EXACT


LAWS: dict[str, Law] = {
    **{name: Law(name, f"{words}: no step is longer, and what fits still fits", _never_slower(better))
       for name, (words, better) in HARDWARE.items() if name != "memory"},
    "memory": Law("memory", "more memory: the same step, and what fits still fits", _same_memory),
    "one is many": Law("one is many", "a policy is priced alike alone and among others in any order", _one_is_many),
    "replicas": Law("replicas", "twice the replicas of as much work each: no GPU holds more", _more_replicas),
    "overlap": Law("overlap", "overlap makes no step longer, but for what it slows on other stages", _overlap_helps),
    "simulated": Law("simulated", "closed form and simulation are as near as documented", _simulated),
    "exported": Law("exported", "a program's own file keeps the policy and its step", _exported),
}  # fmt: skip

PLANNED = ("llama-3-8b", "qwen2.5-7b", "gpt2-xl", "mixtral-8x7b", "gemma-2-9b", "deepseek-v2-lite")
PLANNED_ON = ("8xh100", "2x8xh100@100Gbps/node", "4xa100-80", "2x8xa100-80@25Gbps/node", "8xrtx4090")
PLANNED_STACKS = ("megatron-core", "torchtitan", "nanotron", "deepspeed", "torch-fsdp", "automodel", "megatron-bridge")


def planned(number: int, seed: str) -> tuple[str, float]:
    """(the command, how far the first of a plan is from what its own command says)."""
    generator = Random(f"{seed}/planned/{number}")
    model, on = generator.choice(PLANNED), generator.choice(PLANNED_ON)
    asked = generator.choice([[], [], ["--fix", "overlap_grad=off"], ["--pp", "2"]])
    job = ["--seq", "4096", "--global-batch", str(generator.choice([16, 64]))]
    words = ["plan", model, "--on", on, "--stack", generator.choice(PLANNED_STACKS), *job, *asked]
    command, plan = shlex.join(["shardwise", *words]), _answer([*words, "--json"])
    if not plan or not plan.get("recommended"):
        return command, float("nan")
    first = plan["recommended"]
    run = plan["next"][0]
    again = _answer([*shlex.split(run)[1:], "--json"])
    apart = abs(again["step_s"] / first["step_s"] - 1.0)
    return command, max(apart, abs(again["peak_bytes"] / first["peak_bytes"] - 1.0)) - EXACT


def _answer(words: list[str]) -> dict[str, Any]:
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()):
        main(words)
    found: dict[str, Any] = loads(out.getvalue() or "{}")
    return found


def allowed(drawn: Drawn, policies: Policies) -> bool:
    """Whether a smaller policy is still one of the case."""
    case = drawn.case
    ok = legal(case.model, case.cluster, case.job, policies) & runs(case.stack.abilities.limits, policies)
    return bool(ok[0])
