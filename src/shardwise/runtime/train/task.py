"""What is run: a plan's model, job, policy and stack, and the settings of the training loop. One JSON file."""

from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shardwise.estimate.synced import choice_of, refusal
from shardwise.registry import closest
from shardwise.runtime.train.optimizer import OptimizerSettings
from shardwise.schedules import schedules
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import Stack
from shardwise.work.layout import layout_of
from shardwise.work.stages import stages_of

ACROSS = ("ring", "ulysses", "gather")
PRECISIONS = ("fp32", "fsdp-mixed", "fsdp-mixed-reduce32")


class Task(Struct, frozen=True, kw_only=True):
    """What is trained and how it is split: a plan, less the cluster it was made for."""

    model: Model
    job: Job
    policy: Policy
    stack: Stack
    seed: int = 0
    capacity: float = 0.0
    """copies an expert takes from one rank, over an even share; 0: all of them"""
    across: str = "ring"
    """how attention reaches over context-parallel ranks; the planner prices the ring"""

    @property
    def micro_batches(self) -> int:
        return self.job.global_batch // (self.policy.dp * self.policy.micro_batch)

    @property
    def pieces(self) -> int:
        return self.policy.pp * self.policy.vpp

    def stage(self, rank: int, chunk: int) -> int:
        """Which of the model's pieces a pipeline rank's chunk is."""
        return schedules()[self.policy.schedule].stage(rank, chunk, self.policy.pp, self.policy.vpp)

    def ranges(self) -> list[tuple[int, int]]:
        """Layers [first, end) of each piece, as the planner cuts them."""
        cut = Policies.of([replace(self.policy, pp=self.pieces, vpp=1, schedule="1f1b")])
        layers = stages_of(self.model, layout_of(self.model, self.job, cut), self.stack, every=True).layers[0]
        ends = [int(n) for n in layers.cumsum()]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def recomputed(self, rank: int) -> list[int]:
        """Layers of each chunk of a pipeline rank whose forward is repeated: the first ones."""
        left = self.policy.recompute_layers if self.policy.recompute_layers >= 0 else self.model.layers
        found = []
        for chunk in range(self.policy.vpp):
            first, end = self.ranges()[self.stage(rank, chunk)]
            found.append(min(left, end - first) if self.policy.recompute != "none" else 0)
            left -= found[-1]
        return found


class Settings(Struct, frozen=True, kw_only=True):
    steps: int = 10
    rate: float = 1e-3
    warmup: int = 0
    """steps over which the rate rises to its value"""
    decay: str = "constant"
    """constant, or cosine: down to a tenth over all steps"""
    optimizer: OptimizerSettings = OptimizerSettings()
    data: str = ""
    """a text file read byte by byte; empty: the built-in corpus"""
    log: str = ""
    """JSONL, one object per step"""
    checkpoints: str = ""
    """folder of checkpoints; empty: none are written"""
    every: int = 0
    """steps between checkpoints; 0: only after the last"""
    device: str = "cpu"
    timeout_s: float = 600.0
    """how long a rank waits for the others"""
    peak_flops_per_s: float = 0.0
    """of one device, for mfu; 0: not told"""


class Order(Struct, frozen=True, kw_only=True):
    """What the launched ranks read."""

    task: Task
    settings: Settings


def write_order(order: Order, path: Path) -> None:
    path.write_bytes(msgspec.json.encode(order))


def read_order(path: Path) -> Order:
    return msgspec.json.decode(path.read_bytes(), type=Order)


def checked(task: Task) -> Task:
    """Refuses what the planner can price but no part of the runtime executes."""
    policy, precision, schedule = task.policy, task.job.precision, schedules()[task.policy.schedule]
    if precision.name not in PRECISIONS:
        raise ValueError(f"precision: {precision.name} cannot be run; write {', '.join(PRECISIONS)}")
    if precision.name != "fp32" and not (policy.zero == 3 and policy.dp * policy.cp > 1):
        raise ValueError(f"precision: {precision.name} is FSDP's; write --zero 3 with dp above 1, or --precision fp32")
    if policy.offload != "none":
        raise ValueError(f"offload: {policy.offload} cannot be run; write --offload none")
    if schedule.both_ends:
        raise ValueError(
            f"schedule: {policy.schedule} holds the model twice and cannot be run; write dualpipe_v or zb_v"
        )
    folded = policy.vpp > 1 and task.stage(0, 1) != policy.pp
    if task.model.tied and policy.pp > 1 and (policy.zero == 2 or folded):
        raise ValueError(
            f"schedule: {policy.schedule} with zero {policy.zero} cannot be run with tied vocabulary tables; "
            "write 1f1b or interleaved, and a zero other than 2"
        )
    experts = any(kind.experts for kind in task.model.kinds)
    if policy.sync:
        _strategy(task, experts)
    if experts and policy.shard_group:
        raise ValueError(f"shard-group: {policy.shard_group} with experts cannot be run; write --shard-group 0")
    if policy.ep > 1 and policy.etp > 1:
        raise ValueError(f"etp: {policy.etp} with ep {policy.ep} cannot be run; write --etp 1")
    if any(layer.attention and 0 < layer.attention.window < task.job.seq for layer in task.model.kinds):
        raise ValueError(f"seq: {task.job.seq} is past {task.model.name}'s attention window; write a shorter --seq")
    if task.across not in ACROSS:
        raise ValueError(f"across: {task.across!r} is unknown; {closest(task.across, list(ACROSS))}")
    _decoder(task)
    heads = min(kind.attention.kv_heads for kind in task.model.kinds if kind.attention)
    if task.across == "ulysses" and heads // policy.tp % policy.cp:
        raise ValueError(
            f"across: ulysses needs cp {policy.cp} to divide {heads // policy.tp} key/value heads of a rank"
        )
    return task


def _strategy(task: Task, experts: bool) -> None:
    policy = task.policy
    choice = choice_of(policy.sync)
    why = refusal(choice, task.model, task.job, policy) if choice else ""
    if why:
        raise ValueError(f"sync: {why}")
    if policy.zero == 3 or experts:
        what = "experts" if experts else "zero 3"
        raise ValueError(f"sync: {policy.sync} with {what} cannot be run; write a dense model and --zero 0, 1 or 2")


def _decoder(task: Task) -> None:
    model, policy = task.model, task.policy
    extras = ("token_types", "pooler", "head_transform", "embedding_width", "mtp_layers")
    if model.inputs != "tokens" or any(getattr(model, name) for name in extras) or model.norm == "none":
        raise ValueError(f"model: {model.name} is no plain decoder; write a GPT, Llama or Mixtral form")
    for layer in model.kinds:
        a = layer.attention
        if a is None or a.latent or a.sinks or not a.causal or a.qk_norm == "full" or a.value_dim != a.head_dim:
            raise ValueError(
                f"model: {model.name} has attention this runtime lacks; write a GPT, Llama or Mixtral form"
            )
        if layer.norms not in (2, 4):
            raise ValueError(f"model: {model.name} has {layer.norms} norms a layer; this runtime runs 2 or 4")
        if a.kv_heads % policy.tp:
            raise ValueError(f"tp: {policy.tp} does not divide {a.kv_heads} key/value heads; write a divisor")
        if layer.experts is not None and (layer.experts.bias or layer.experts.router_bias):
            raise ValueError(f"model: {model.name} has experts with biases, which this runtime lacks")
        if layer.experts is not None and policy.tp > 1 and not policy.sp:
            raise ValueError("sp: experts with tp need sequence parallelism; leave --no-sp away")
    if model.vocab % policy.tp:
        raise ValueError(f"tp: {policy.tp} does not divide a vocabulary of {model.vocab:,}; write a divisor")
