"""Random cases for `agree.py`: a model, a cluster, a job, a policy that its rules allow, and the software. Seeded.

Half of the models are of the catalog, half have random shapes; fabrics are of six kinds; a schedule is drawn first and
then degrees, until the rules allow them. Nothing asks whether a case fits into memory: it does not change a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
from msgspec.structs import replace

from shardwise.plugins.pipeline import schedule_names
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.hardware import gpu_of
from shardwise.spec.job import Job
from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model
from shardwise.spec.policy import ORDERS, RECOMPUTE, Policies, Policy
from shardwise.spec.rules import divisors, legal
from shardwise.spec.software import Stack, stack_of

DENSE = ("llama-3-8b", "llama-3-70b", "qwen2.5-7b", "qwen2.5-72b", "gpt-3-6.7b", "gemma-2-9b", "gpt2-xl", "olmo-2-32b")
LATENT = ("deepseek-v2-lite", "deepseek-v3", "moonlight-16b-a3b", "kimi-k2")
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "dbrx", "gpt-oss-20b", "qwen1.5-moe-a2.7b")
STACKS = ("megatron-core", "nanotron", "megatron-core@lm", "shardwise", "torchtitan")
KINDS = ("thin ethernet", "rails 4:1", "nvl72", "pcie", "fat tree", "one node")
MOST_MICRO_BATCHES = 48
TRIES = 48


@dataclass(frozen=True)
class Sample:
    """One case, and the kind of fabric it is on."""

    kind: str
    model: Model
    cluster: Cluster
    job: Job
    policy: Policy
    stack: Stack


def cases(count: int, seed: int = 0) -> Iterator[Sample]:
    """The first of a longer list are the same as a shorter one."""
    for number in range(count):
        generator = Random(f"{seed}/{number}")
        kind, schedule = KINDS[number % len(KINDS)], schedule_names()[number // len(KINDS) % len(schedule_names())]
        found = None
        while found is None:
            found = _case(kind, schedule, generator)
        yield found


@dataclass(frozen=True)
class SmallSpace:
    """Policies of one model on one small cluster that a planner would choose from."""

    kind: str
    model: Model
    cluster: Cluster
    job: Job
    policies: Policies
    stack: Stack


def small_spaces(count: int, seed: int = 0, most: int = 40) -> Iterator[SmallSpace]:
    """8 to 32 GPUs and up to `most` distinct legal policies each, at least four."""
    number, found = 0, 0
    while found < count:
        generator = Random(f"{seed}/space/{number}")
        kind = KINDS[number % len(KINDS)]
        number += 1
        model, cluster, job = random_model(generator), random_cluster(kind, generator, most=32), random_job(generator)
        table = _policies(model, cluster, job, generator, TRIES * 10)
        if len(table) < 4 or cluster.gpus < 8:
            continue
        found += 1
        yield SmallSpace(kind, model, cluster, job, table.take(np.arange(min(len(table), most))), stack_of(STACKS[0]))


def _case(kind: str, schedule: str, generator: Random) -> Sample | None:
    model, cluster, job = random_model(generator), random_cluster(kind, generator), random_job(generator)
    # torchtitan's attention kernel is timed on an H100 only
    stack = stack_of(generator.choice(STACKS if cluster.gpu.name == "h100" else STACKS[:-1]))
    table = _policies(model, cluster, job, generator, TRIES, (schedule,))
    return Sample(kind, model, cluster, job, table[0], stack) if len(table) else None


def random_model(generator: Random) -> Model:
    sort = generator.choice(["dense", "latent", "experts"])
    if generator.random() < 0.5:
        return model_of(generator.choice({"dense": DENSE, "latent": LATENT, "experts": EXPERTS}[sort]))
    heads = generator.choice([8, 16, 24, 32])
    width = 64 * heads * (generator.choice([1, 2]))
    kv = heads if sort == "latent" else heads // (generator.choice([1, 2, 4, 8]))
    latent = {"q_lora": 384, "kv_lora": 256, "rope_dim": 32, "v_head_dim": 64} if sort == "latent" else {}
    attention = Attention(heads=heads, kv_heads=kv, head_dim=96 if latent else 64, **latent)
    plain = Layer(attention=attention, feed_forward=FeedForward(width=(generator.choice([2, 3, 4])) * width, glu=True))
    kinds, layers = (plain,), generator.randint(4, 48)
    pattern = (0,) * layers
    if sort != "dense":
        experts = Experts(
            count=(generator.choice([8, 16, 64])), top_k=(generator.choice([1, 2, 4])),
            width=(generator.choice([512, 1024, 2048])), shared_width=(generator.choice([0, 1024])),
        )  # fmt: skip
        kinds, first = (plain, Layer(attention=attention, experts=experts)), generator.randint(0, 2)
        pattern = (0,) * first + (1,) * (layers - first)
    return Model(
        name=f"random-{sort}", family="llama", hidden=width, vocab=(generator.choice([32_000, 50_304, 128_256])),
        kinds=kinds, pattern=pattern, tied=bool(generator.random() < 0.3),
    )  # fmt: skip


def random_job(generator: Random) -> Job:
    return Job(seq=2 ** generator.randint(10, 14), global_batch=2 ** generator.randint(4, 9))


def random_cluster(kind: str, generator: Random, most: int = 128) -> Cluster:
    def network(name: str, degree: int, gbps: float, us: float, over: float = 1.0, rails: int = 1) -> Level:
        return Level(name=name, kind="network", degree=degree, bandwidth=gbps * 1e9 / 8, latency_s=us * 1e-6,
                     oversubscription=over, rails=rails)  # fmt: skip

    def inside(gpu: str, degree: int, rate: float) -> Level:
        joined = "pcie" if rate < 100e9 else "nvlink"
        return Level(name="node", kind=joined, degree=degree, bandwidth=rate, latency_s=0.8e-6,
                     reduces=gpu in ("h100", "gb200"))  # fmt: skip

    sizes = [n for n in (8, 16, 24, 32, 48, 64, 96, 128) if n <= most]
    gpus = generator.choice(sizes[1:])
    if kind == "thin ethernet":
        # one port a node, shared by its 8 GPUs
        port = generator.choice([1, 10, 25, 100])
        levels = (inside("a100-80", 8, 300e9), network("leaf", 16, port / 8, 3))
        return Cluster(name=f"{kind} {port:g}G", gpu=gpu_of("a100-80"), gpus=gpus, levels=levels)
    if kind == "rails 4:1":
        nodes = generator.choice([2, 4])
        levels = (inside("h100", 8, 450e9), network("leaf", nodes, 400, 1, rails=8), network("spine", 16, 400, 2, 4.0))
        return Cluster(name=kind, gpu=gpu_of("h100"), gpus=gpus, levels=levels)
    if kind == "nvl72":
        racks = (inside("gb200", 72, 900e9), network("leaf", 4, 400, 1, rails=4))
        count = generator.choice([n for n in (8, 16, 36, 72, 144) if n <= 1.2 * most])
        return Cluster(name=kind, gpu=gpu_of("gb200"), gpus=count, levels=racks if count > 72 else racks[:1])
    if kind == "pcie":
        card = generator.choice(["a100-80-pcie", "rtx4090"])
        node = generator.choice([4, 8])
        levels = (inside(card, node, 32e9), network("leaf", 32, 200 / node, 1))
        return Cluster(name=f"{kind} {card}", gpu=gpu_of(card), gpus=gpus, levels=levels)
    if kind == "fat tree":
        levels = (inside("h100", 8, 450e9), network("leaf", 4, 400, 1, rails=8), network("spine", 4, 400, 2))
        return Cluster(name=kind, gpu=gpu_of("h100"), gpus=gpus, levels=levels)
    count = generator.choice([4, 8])
    return Cluster(name=kind, gpu=gpu_of("h100"), gpus=count, levels=(inside("h100", 8, 450e9),))


def _policies(model: Model, cluster: Cluster, job: Job, generator: Random, tries: int,
              names: tuple[str, ...] = schedule_names()) -> Policies:  # fmt: skip
    """Distinct legal ones among so many that were drawn."""
    drawn = [random_policy(model, cluster, generator, generator.choice(names)) for _ in range(tries)]
    table = Policies.of(dict.fromkeys(drawn))
    ok = legal(model, cluster, job, table)
    micro = job.global_batch // np.maximum(table.dp * table.micro_batch, 1)
    return table.take(np.flatnonzero(ok & (micro <= MOST_MICRO_BATCHES)))


def random_policy(model: Model, cluster: Cluster, generator: Random, schedule: str) -> Policy:
    def one_of(values: list[int]) -> int:
        return generator.choice(values)

    tp = one_of([d for d in divisors(cluster.gpus) if d <= 16])
    pp = 1 if schedule == "none" else one_of([d for d in divisors(cluster.gpus // tp) if d <= 16])
    cp = one_of([d for d in divisors(cluster.gpus // tp // pp) if d <= 4])
    dp = cluster.gpus // (tp * pp * cp)
    experts = next((kind.experts for kind in model.kinds if kind.experts), None)
    ep = 1 if experts is None else one_of([d for d in divisors(dp * cp * tp) if experts.count % d == 0])
    etp = 0 if experts is None or generator.random() < 0.7 else one_of(divisors(tp))
    policy = Policy(
        tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, etp=etp, schedule=schedule, sp=bool(generator.random() < 0.8),
        zero=one_of([0, 1, 2, 3]), micro_batch=one_of([1, 1, 2, 4]), order=(generator.choice(ORDERS)),
        shard_group=one_of([0, 0, *divisors(dp * cp)]), recompute=(generator.choice(RECOMPUTE)),
        overlap_grad=bool(generator.random() < 0.7), overlap_param=bool(generator.random() < 0.7),
        overlap_tp=bool(generator.random() < 0.3), overlap_pp=bool(generator.random() < 0.7),
    )  # fmt: skip
    if schedule in ("zb_v", "dualpipe_v"):
        return replace(policy, vpp=2)
    if schedule in ("interleaved", "looped_bfs", "interleaved_zero_bubble"):
        return replace(policy, vpp=one_of([2, 3, 4]))
    return policy
