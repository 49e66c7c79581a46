"""What runtime_gpu.py runs: whole jobs of one GPU, and one rank of plans for many."""

from dataclasses import dataclass

from msgspec.structs import replace

from shardwise.run.runtime.train.task import Task
from shardwise.spec.arch import model_from_shape, model_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of


@dataclass(frozen=True)
class Case:
    name: str
    model: Model
    job: Job
    policy: Policy

    @property
    def task(self) -> Task:
        return Task(model=self.model, job=self.job, policy=self.policy, stack=stack_of("shardwise"), drawn_here=True)


ONE = """
name layers hidden heads kv ffn glu vocab seq micro accum recompute precision
llama-160m 12 768 12 4 2048 1 32000 2048 8 1 none bf16
llama-160m-short 12 768 12 4 2048 1 32000 512 2 1 none bf16
llama-deep 48 1024 16 16 2816 1 32000 1024 4 1 none bf16
llama-1b 16 2048 32 8 8192 1 128256 2048 4 1 none bf16
llama-1b-accumulated 16 2048 32 8 8192 1 128256 2048 4 4 none bf16
llama-1b-recompute 16 2048 32 8 8192 1 128256 2048 8 1 full bf16
llama-1b-16k 16 2048 32 8 8192 1 32000 16384 1 1 full bf16
llama-3b-pure 28 3072 24 8 8192 1 128256 2048 2 1 none bf16-pure
llama-8b-cut 8 4096 32 8 14336 1 128256 8192 1 1 none bf16
llama-8b-cut-pure 8 4096 32 8 14336 1 128256 4096 2 1 none bf16-pure
llama-8b-cut-recompute 8 4096 32 8 14336 1 128256 8192 2 1 full bf16
llama-13b-cut-accumulated 6 5120 40 40 13824 1 32000 4096 1 4 none bf16
qwen-7b-cut 6 3584 28 4 18944 1 152064 4096 1 1 none bf16
llama-70b-cut 2 8192 64 8 28672 1 32000 4096 1 1 none bf16
gpt-1.3b 24 2048 16 16 8192 0 50304 2048 4 1 none bf16
gpt-2.7b-half 16 2560 32 32 10240 0 50304 2048 4 2 none bf16-pure
gpt-6.7b-cut-recompute 6 4096 32 32 16384 0 50304 2048 4 1 full bf16
""".strip()

MANY = """
model tp pp dp vpp zero schedule recompute seq micro batches precision
llama-3-8b 4 1 16 1 1 1f1b none 8192 2 2 bf16
llama-3-8b 8 1 128 1 1 1f1b none 8192 4 2 bf16
llama-3-8b 1 1 128 1 3 1f1b full 8192 1 1 fsdp-mixed-reduce32
llama-3-8b 2 2 32 1 1 1f1b full 8192 1 4 bf16
llama-2-13b 2 4 16 1 0 1f1b none 4096 1 8 bf16
qwen2.5-32b 4 4 16 1 1 1f1b full 4096 2 4 bf16
llama-3-70b 8 4 8 1 1 1f1b full 8192 2 4 bf16
llama-3-70b 8 8 16 2 1 interleaved none 8192 1 8 bf16
llama-3-70b 8 1 64 1 3 1f1b full 8192 1 1 fsdp-mixed-reduce32
llama-2-70b 4 8 16 1 1 1f1b full 4096 1 16 bf16
""".strip()


def rows(table: str) -> list[dict[str, str]]:
    names, *lines = (line.split() for line in table.splitlines())
    return [dict(zip(names, line, strict=True)) for line in lines]


def one_gpu() -> list[Case]:
    found = []
    for row in rows(ONE):
        n = {k: int(v) for k, v in row.items() if v.isdigit()}
        model = model_from_shape(
            row["name"], n["layers"], n["hidden"], n["heads"], n["kv"], n["ffn"], bool(n["glu"]), n["vocab"],
            tied=False, positions=n["seq"],
        )  # fmt: skip
        job = Job(seq=n["seq"], global_batch=n["micro"] * n["accum"], precision=precision_of(row["precision"]))
        policy = Policy(zero=0, sp=False, micro_batch=n["micro"], recompute=row["recompute"])
        found.append(Case(row["name"], _without_dropout(model), job, policy))
    return found


def ranks_of_many() -> list[Case]:
    found = []
    for row in rows(MANY):
        n = {k: int(v) for k, v in row.items() if v.isdigit()}
        job = Job(
            seq=n["seq"], global_batch=n["dp"] * n["micro"] * n["batches"], precision=precision_of(row["precision"])
        )
        policy = Policy(
            tp=n["tp"], pp=n["pp"], dp=n["dp"], vpp=n["vpp"], zero=n["zero"], schedule=row["schedule"],
            recompute=row["recompute"], micro_batch=n["micro"], sp=n["tp"] > 1,
        )  # fmt: skip
        name = f"{row['model']} tp{n['tp']} pp{n['pp']} dp{n['dp']}"
        found.append(Case(name, _without_dropout(model_of(row["model"])), job, policy))
    return found


def _without_dropout(model: Model) -> Model:
    return replace(model, dropout=False)
