"""Small models and batches for tests that train: losses and whole gradients of a policy, on forked ranks."""

from dataclasses import dataclass, field

import numpy as np
import torch
from msgspec.structs import replace

from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.optimizer import OptimizerSettings
from shardwise.run.runtime.train.task import Task
from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.model import Attention, Model
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of

SEQ, BATCH, RATE = 16, 4, 1e-3


def shaped(name: str, **more) -> Model:
    given = {"layers": 4, "hidden": 32, "heads": 8, "kv_heads": 4, "ffn": 96, "glu": True, "vocab": 128, "tied": False}
    return model_from_shape(name, **{**given, **more})


LLAMA = shaped("llama")
GPT = replace(shaped("gpt", kv_heads=8, glu=False, tied=True, positions=SEQ), dropout=False)
MOE = shaped("moe", layers=2, experts=8, top_k=2, expert_ffn=32, shared_ffn=64)
MLA = Attention(heads=8, kv_heads=8, head_dim=8, v_head_dim=4, q_lora=24, kv_lora=16, rope_dim=4)
MODELS = {
    "mla": replace(
        LLAMA, name="mla", kinds=tuple(replace(kind, attention=MLA) for kind in LLAMA.kinds)
    ),
    "llama": LLAMA, "gpt": GPT, "moe": MOE,
    "mqa": shaped("mqa", kv_heads=1),
    "few heads": shaped("few heads", kv_heads=2),
    "wide": shaped("wide", layers=2, hidden=128, ffn=256),
    "odd": shaped("odd", hidden=48, ffn=90, vocab=130),
}  # fmt: skip


@dataclass
class Trained:
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    pieces: list[tuple] = field(default_factory=list)
    """of the first step's gradient: name, whole shape, offsets, local shape, first element, values"""
    last: list[tuple] = field(default_factory=list)
    """of the last step's"""


def task_of(model: Model, policy: Policy, precision: str = "fp32", cuts: dict | None = None, **more) -> Task:
    """`cuts`: other ways to cut embedding and attention than the stack's own."""
    policy = replace(policy, sp=policy.sp and policy.tp > 1)
    job = Job(seq=SEQ, global_batch=BATCH, precision=PRECISIONS[precision])
    return Task(model=model, job=job, policy=policy, stack=stack_of("shardwise").changed(**(cuts or {})), **more)


def batch_for(engine: TrainingEngine, step: int):
    """The same random tokens in every layout, dealt out as the policy says."""
    task = engine.task
    generator = torch.Generator().manual_seed(step)
    rows = torch.randint(0, task.model.vocab, (BATCH, SEQ + 1), generator=generator)
    share, at = BATCH // task.policy.dp, engine.context.positions
    mine = rows[engine.world.data_index * share :][:share].t()

    def micro_batch(index: int):
        part = mine[:, index * task.policy.micro_batch :][:, : task.policy.micro_batch]
        return part[at].contiguous(), part[at + 1].contiguous()

    return micro_batch


def train(task: Task, steps: int) -> Trained:
    engine = TrainingEngine(task, torch.device("cpu"), OptimizerSettings())
    found = Trained()
    for step in range(steps):
        part = engine.accumulate(batch_for(engine, step)).double() / engine.world.tp.size
        found.losses.append(float(engine.world.comm.all_reduce(part, engine.world.everyone)))
        if step == 0:
            found.pieces = gradient_pieces(engine)
        if step == steps - 1:
            found.last = gradient_pieces(engine)
        found.norms.append(engine.update(RATE))
    return found


def gradient_pieces(engine: TrainingEngine) -> list[tuple]:
    found = []
    for local in engine.locals():
        for span in local.spans:
            piece = span.held.piece
            values = local.grad[span.at : span.at + span.length].float().clone().numpy()
            found.append((piece.name, piece.shape, piece.offsets, piece.local_shape, span.first, values))
    return found


def assembled(trained: list[Trained], which: str = "pieces") -> dict[str, np.ndarray]:
    """Whole gradients from all ranks' pieces; every element must be there."""
    whole: dict[str, np.ndarray] = {}
    blocks: dict[tuple, np.ndarray] = {}
    for name, shape, offsets, local, first, values in (p for t in trained for p in getattr(t, which)):
        block = blocks.setdefault((name, shape, offsets, local), np.full(int(np.prod(local)), np.nan))
        block[first : first + len(values)] = values
    for (name, shape, offsets, local), block in blocks.items():
        target = whole.setdefault(name, np.full(shape, np.nan))
        target[tuple(slice(o, o + n) for o, n in zip(offsets, local, strict=True))] = block.reshape(local)
    assert not any(np.isnan(g).any() for g in whole.values())
    return whole


def together(tasks: list[Task], steps: int) -> list[list[Trained]]:
    """Several tasks of the same number of ranks, one after another, on one set of ranks."""
    ranks = tasks[0].policy.gpus
    by_rank = forked(ranks, lambda _: [train(task, steps) for task in tasks])
    return [list(of_task) for of_task in zip(*by_rank, strict=True)]
