"""Small placement problems that several test files share."""

from msgspec.structs import replace

from shardwise.plan.search.problems import RandomRouting, expert_problem, rank_problem
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

CORE = stack_of("megatron-core")
LLAMA, MIXTRAL, DEEPSEEK = (model_of(name) for name in ("llama-3-70b", "mixtral-8x7b", "deepseek-v3"))


def fabric(gpus, leaf=4, oversubscription=4.0, spine=64, core=0):
    """Nodes of 8 under leaves, leaves under a spine, with a core above it where asked for."""
    whole = cluster_of("dgx-h100:16384")
    node, first, second, third = whole.levels
    levels = [node, replace(first, degree=leaf), replace(second, degree=spine, oversubscription=oversubscription)]
    if core:
        levels.append(replace(third, degree=core, oversubscription=oversubscription))
    return replace(whole, name="test", gpus=gpus, levels=tuple(levels))


def ranks(policy, cluster, model=LLAMA, batch=64, **more):
    return rank_problem(case_of(model, cluster, Job(seq=4096, global_batch=batch), CORE), policy, **more)


def experts(seed=0, tokens=60, ep=4, on="4x2xh100", model=MIXTRAL, **more):
    job, policy = Job(seq=4096, global_batch=64), Policy(dp=cluster_of(on).gpus, ep=ep)
    sample = more.pop("sample", RandomRouting(seed=seed, tokens=tokens))
    return expert_problem(case_of(model, cluster_of(on), job, CORE), policy, sample=sample, **more)


SMALL = {
    "dp and pp": lambda: ranks(Policy(tp=8, pp=2, dp=4), fabric(64)),
    "pp alone": lambda: ranks(Policy(tp=8, pp=8), fabric(64)),
    "scattered, spare and slow": lambda: ranks(
        Policy(tp=8, pp=2, dp=3), fabric(256), batch=66, free=[0, 1, 5, 6, 7, 9, 14], slow=[5, 6]
    ),
    "three levels": lambda: ranks(
        Policy(tp=8, dp=4), fabric(64, leaf=2, spine=2, core=4), free=[0, 1, 2, 4, 8]
    ),
    "experts": lambda: experts(),
    "other experts": lambda: experts(seed=3, tokens=40),
    "experts with replicas": lambda: experts(seed=1, tokens=20, replicas=2, ep=2, on="2x1xh100"),
}  # fmt: skip
