"""What is run: a plan's model, job, policy and stack, and the settings of the training loop. One JSON file."""

from math import inf

from msgspec import Struct
from msgspec.structs import replace

from shardwise.measured.record.step import RecordHead
from shardwise.plugins.schedules import schedules
from shardwise.run.runtime.parallel.world import etp_of
from shardwise.run.runtime.rollout.order import RolloutOrder
from shardwise.run.runtime.train.limits import one_of, require
from shardwise.run.runtime.train.optimizer import OptimizerSettings
from shardwise.spec.arch.tuned import adapted_tensors, tuned
from shardwise.spec.job import Job
from shardwise.spec.matrices import exchange_of
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import split_refusal
from shardwise.spec.software import Stack
from shardwise.spec.tuning import NF4_BLOCK, Tuning
from shardwise.step.estimate.synced import choice_of, refusal
from shardwise.work.layout import layout_of
from shardwise.work.stages import stages_of

DECAYS = ("constant", "cosine", "linear", "wsd")
PROGRESS = ("lines", "bar", "none")
PRECISIONS = ("fp32", "bf16", "bf16-pure", "fsdp-mixed", "fsdp-mixed-reduce32")


class Task(Struct, frozen=True, kw_only=True):
    """What is trained and how it is split: a plan, less the cluster it was made for."""

    model: Model
    job: Job
    policy: Policy
    stack: Stack
    seed: int = 0
    capacity: float = 0.0
    """copies an expert takes from one rank, over an even share; 0: all of them"""
    even_routing: bool = False
    """every expert gets as many copies, whatever the router says: what is predicted"""
    drawn_here: bool = False
    """weights are drawn on the device, other ones in every layout: for measurements of large models"""

    @property
    def tuned_model(self) -> Model:
        """With each layer as the job trains it."""
        return tuned(self.model, self.job.tuning)

    @property
    def micro_batches(self) -> int:
        return self.job.global_batch // (self.policy.dp * self.policy.micro_batch)

    @property
    def pieces(self) -> int:
        return self.policy.pp * self.policy.vpp

    @property
    def both_ends(self) -> bool:
        return schedules()[self.policy.schedule].both_ends

    @property
    def chunks(self) -> int:
        """Parts of the model on one rank."""
        return 2 if self.both_ends else self.policy.vpp

    @property
    def kv_copies(self) -> int:
        """Tensor-parallel ranks that hold the same key/value heads."""
        heads = [kind.attention.kv_heads for kind in self.model.kinds if kind.attention]
        return max((self.policy.tp // min(self.policy.tp, few) for few in heads), default=1)

    @property
    def ends_together(self) -> bool:
        """The first pipeline rank has the embedding in one chunk and the head in another."""
        return self.policy.pp > 1 and self.chunks > 1 and self.stage(0, self.chunks - 1) == self.pieces - 1

    def stage(self, rank: int, chunk: int) -> int:
        """Which of the model's pieces a pipeline rank's chunk is."""
        return schedules()[self.policy.schedule].stage(rank, chunk, self.policy.pp, self.policy.vpp)

    def ranges(self) -> list[tuple[int, int]]:
        """Layers [first, end) of each piece, as the planner cuts them."""
        cut = Policies.of([replace(self.policy, pp=self.pieces, vpp=1, schedule="1f1b")])
        model = self.tuned_model
        layers = stages_of(model, layout_of(model, self.job, cut), self.stack, every=True).layers[0]
        ends = [int(n) for n in layers.cumsum()]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def recomputed(self, rank: int) -> list[int]:
        """Layers of each chunk of a pipeline rank whose forward is repeated: the first ones."""
        most = self.policy.recompute_layers if self.policy.recompute_layers >= 0 else self.model.layers
        left, found = most, list[int]()
        for chunk in range(self.chunks):
            # two directions are two models
            left = most if self.both_ends else left
            first, end = self.ranges()[self.stage(rank, chunk)]
            found.append(min(left, end - first) if self.policy.recompute != "none" else 0)
            left -= found[-1]
        return found


class TrainingSettings(Struct, frozen=True, kw_only=True):
    steps: int = 10
    rate: float = 1e-3
    warmup: int = 0
    """steps over which the rate rises to its value"""
    decay: str = "constant"
    """constant; cosine or linear over all steps; wsd: linear over the last `decay_steps`"""
    floor: float = 0.1
    """what a decay leaves of the rate"""
    decay_steps: int = 0
    """of wsd; 0: a tenth of all steps"""
    optimizer: OptimizerSettings = OptimizerSettings()
    data: tuple[str, ...] = ()
    """text files, folders of them or patterns; empty: the built-in corpus"""
    tokenizer: str = "byte"
    """byte, a tokenizer.json, or a name the tokenizers package finds"""
    token_cache: str = ""
    """folder of tokenized texts; empty: the user's cache folder"""
    eval_every: int = 0
    """steps between evaluations; 0: none"""
    eval_steps: int = 4
    """batches of an evaluation"""
    eval_data: tuple[str, ...] = ()
    """what is evaluated on; empty: a part of the data that is not trained on"""
    log: str = ""
    """JSONL, one object per step"""
    records: str = ""
    """folder in which each rank writes where its steps' time went; empty: nowhere"""
    expected: RecordHead = RecordHead()
    """for its head: what was predicted, where this is the machine that was planned for"""
    progress: str = "lines"
    """what is told on stderr while it trains: a line a step, a bar, or nothing"""
    tensorboard: str = ""
    """folder of TensorBoard's event files; empty: none are written"""
    init: str = ""
    """safetensors file or folder the weights are read from; empty: seeded by name"""
    export: str = ""
    """folder the weights are written to after the last step, in Hugging Face's layout"""
    checkpoints: str = ""
    """folder of checkpoints; empty: none are written"""
    every: int = 0
    """steps between checkpoints; 0: only after the last"""
    async_checkpoints: bool = True
    """training goes on while a checkpoint is written"""
    keep: int = 0
    """so many newest checkpoints stay; 0: all"""
    force: bool = False
    """goes on from a checkpoint of another run"""
    go_on_unsaved: bool = False
    """training goes on when a checkpoint cannot be written"""
    device: str = "cpu"
    timeout_s: float = 600.0
    """how long a rank waits for the others"""
    peak_flops_per_s: float = 0.0
    """of one device, for mfu; 0: not told"""

    def __post_init__(self) -> None:
        one_of("decay", self.decay, DECAYS)
        one_of("progress", self.progress, PROGRESS)
        require((
            ("steps", self.steps, self.steps >= 1, "a whole number of 1 or more"),
            ("rate", self.rate, 0 < self.rate < inf, "a number above 0 such as 1e-3"),
            ("warmup", self.warmup, self.warmup >= 0, "a whole number of 0 or more"),
            ("floor", self.floor, 0 <= self.floor <= 1, "a share of the rate from 0 to 1, such as 0.1"),
            ("decay-steps", self.decay_steps, 0 <= self.decay_steps <= self.steps, f"0 to {self.steps} (all steps)"),
            ("eval-every", self.eval_every, self.eval_every >= 0, "a whole number of 0 or more (0: no evaluation)"),
            ("eval-steps", self.eval_steps, self.eval_steps >= 1, "a whole number of 1 or more"),
            ("every", self.every, self.every >= 0, "a whole number of 0 or more (0: only after the last step)"),
            ("keep", self.keep, self.keep >= 0, "a whole number of 0 or more (0: all)"),
            ("timeout", self.timeout_s, 0 < self.timeout_s < inf, "seconds above 0, such as 600"),
        ))  # fmt: skip


class TrainingOrder(Struct, frozen=True, kw_only=True):
    """What the launched ranks read."""

    task: Task
    settings: TrainingSettings
    rollout: RolloutOrder | None = None
    """None: trained on texts"""

    @property
    def ranks(self) -> int:
        """All that are started."""
        return self.task.policy.gpus + (self.rollout.ranks if self.rollout is not None else 0)


def checked(task: Task) -> Task:
    """Refuses what breaks a rule, and what the planner can price but no part of the runtime executes."""
    policy, precision = task.policy, task.job.precision
    if why := split_refusal(task.model, task.job, policy):
        raise ValueError(f"policy: {why}; write other degrees")
    if precision.name not in PRECISIONS:
        raise ValueError(f"precision: {precision.name} cannot be run; write {', '.join(PRECISIONS)}")
    sharded = policy.zero == 3 and policy.dp * policy.cp > 1
    if precision.name.startswith("fsdp") and not sharded:
        raise ValueError(f"precision: {precision.name} is FSDP's; write --zero 3 with dp above 1, or --precision bf16")
    if precision.name.startswith("bf16") and sharded:
        raise ValueError(f"precision: {precision.name} with zero 3 cannot be run; write fsdp-mixed-reduce32")
    if policy.loss not in ("", "fused"):
        raise ValueError(f"loss: {policy.loss} cannot be run; write --loss fused")
    if policy.recompute_modules:
        raise ValueError("recompute-modules: cannot be run; write --recompute none or full")
    if policy.offload_share != 1:
        raise ValueError(f"offload-share: {policy.offload_share:g} cannot be run; write 1")
    if policy.offload not in ("none", "optimizer"):
        raise ValueError(f"offload: {policy.offload} cannot be run; write --offload none or optimizer")
    if policy.offload != "none" and precision.name.startswith("bf16"):
        raise ValueError(f"offload: {policy.offload} with {precision.name} cannot be run; write --precision fp32")
    experts = any(kind.experts for kind in task.model.kinds)
    if task.even_routing and task.capacity:
        raise ValueError(f"capacity: {task.capacity:g} with even routing means nothing; write --capacity 0")
    if policy.sync:
        _strategy(task, experts)
    if task.job.optimizer.rule.takes_single:
        _single_tensors(task)
    if task.job.tuning is not None:
        _tuned(task, task.job.tuning, experts=experts)
    if experts and policy.shard_group:
        _expert_shards(policy)
    if task.model.inputs == "features":
        return task
    _decoder(task)
    if any(layer.attention and 0 < layer.attention.window < task.job.seq for layer in task.model.kinds):
        raise ValueError(f"seq: {task.job.seq} is past {task.model.name}'s attention window; write a shorter --seq")
    _variants(task)
    return task


def _tuned(task: Task, tuning: Tuning, *, experts: bool) -> None:
    policy, model, cure = task.policy, task.model, "write --tune lora, or full"
    if tuning.base:
        _four_bits(task, tuning.base)
    if tuning.adapters is not None and tuning.adapters.magnitudes:
        raise ValueError(f"tune: dora cannot be run; {cure}")
    if experts or any(kind.attention and kind.attention.latent for kind in model.kinds):
        part = "experts" if experts else "latent attention"
        raise ValueError(f"tune: {model.name} has {part}, which run trains whole only; write --tune full, no --freeze")
    lowest = task.tuned_model
    if policy.pp > 1 and any(how is not None and not how.backward for how in (k.tuned for k in lowest.kinds)):
        raise ValueError("freeze: with pp above 1 no gradient reaches the first stages; leave first= out, or --pp 1")
    if any("[" in t.name for kind in range(len(lowest.kinds)) for t in adapted_tensors(lowest, kind)):
        raise ValueError(f"tune: {model.name} keeps several matrices as one, whose adapter is shared; {cure}")
    if task.job.optimizer.rule.takes_single:
        raise ValueError(f"optimizer: {task.job.optimizer.name} is run on whole models only; write --optimizer adamw")
    if policy.sync or policy.offload != "none":
        other = "sync" if policy.sync else "offload"
        raise ValueError(f"{other}: cannot be run where a model is not trained whole; leave --{other} out")


def _four_bits(task: Task, base: str) -> None:
    """Blocks that share a scale are those of a whole matrix, in any layout."""
    policy, attention = task.policy, next(kind.attention for kind in task.model.kinds if kind.attention)
    if policy.zero == 3 and policy.dp * policy.cp > 1:
        raise ValueError(f"zero: 3 with base={base} cannot be run, which keeps packed matrices whole; write --zero 2")
    if policy.tp == 1:
        return
    if base == "nf4":
        raise ValueError(
            "tune: base=nf4 has one mean of all scales of a matrix, which tp cuts; write base=nf4-single, or --tp 1"
        )
    inner = [kind.feed_forward.width for kind in task.model.kinds if kind.feed_forward]
    widths = (task.model.hidden, attention.heads * attention.value_dim // policy.tp, *(w // policy.tp for w in inner))
    if any(width % NF4_BLOCK for width in widths):
        raise ValueError(
            f"tp: {policy.tp} leaves rows of {', '.join(map(str, widths))}, which {NF4_BLOCK} that share a scale do "
            "not divide; write --tp 1"
        )


def _variants(task: Task) -> None:
    policy, stack, kinds = task.policy, task.stack, task.model.kinds
    heads = min(kind.attention.kv_heads for kind in task.model.kinds if kind.attention)
    if stack.abilities.context_parallel == "ulysses" and policy.cp > 1 and max(heads // policy.tp, 1) % policy.cp:
        raise ValueError(
            f"context-parallel: ulysses needs cp {policy.cp} to divide the {max(heads // policy.tp, 1)} key/value "
            "heads of a rank"
        )
    if stack.abilities.attention_split == "gather-qk" and any(
        kind.attention and kind.attention.latent for kind in kinds
    ):
        raise ValueError(f"attention-split: {task.model.name} has latent attention; write --attention-split heads")
    if stack.abilities.attention_split == "gather-qk" and heads % policy.tp:
        raise ValueError(f"attention-split: gather-qk needs tp {policy.tp} to divide {heads} key/value heads")
    if stack.loss.embedding == "broadcast" and task.model.tied:
        raise ValueError(f"embedding: {task.model.name}'s head needs its table cut; write --embedding vocab")
    if stack.loss.embedding == "broadcast" and task.job.precision.name != "fp32":
        raise ValueError("embedding: broadcast runs in fp32 only; write --precision fp32")


def _expert_shards(policy: Policy) -> None:
    ranks = policy.dp * policy.cp * policy.tp // (policy.ep * etp_of(policy))
    if ranks % min(policy.shard_group, ranks):
        raise ValueError(
            f"shard-group: {policy.shard_group} does not divide the {ranks} ranks that hold an expert; write a divisor"
        )


def _strategy(task: Task, experts: bool) -> None:
    policy = task.policy
    choice = choice_of(policy.sync)
    why = refusal(choice, task.model, task.job, policy) if choice else ""
    if why:
        raise ValueError(f"sync: {why}")
    if policy.zero == 3 or experts:
        what = "experts" if experts else "zero 3"
        raise ValueError(f"sync: {policy.sync} with {what} cannot be run; write a dense model and --zero 0, 1 or 2")


def _single_tensors(task: Task) -> None:
    policy, name = task.policy, task.job.optimizer.name
    if policy.zero == 3 and policy.dp * policy.cp > 1 and exchange_of(task.job.optimizer.rule, policy) == "owned":
        raise ValueError(
            f"matrix-layout: owned with zero 3 cannot be run with {name}: FSDP2 gives every rank rows of each matrix; "
            "write --matrix-layout all-to-all or gather, or --zero 1"
        )
    if policy.sync and policy.zero and policy.dp * policy.cp > 1:
        raise ValueError(f"zero: {policy.zero} with --sync cannot be run with {name}; write --zero 0")
    if policy.offload != "none":
        raise ValueError(f"offload: cannot be run with {name}; leave --offload away, or write --optimizer adamw")


def _decoder(task: Task) -> None:
    model, policy = task.model, task.policy
    if model.hybrid:
        raise ValueError(
            f"model: {model.name} has layers of one mixer each (hybrid_override_pattern), which this runtime lacks; "
            "write a GPT, Llama or Mixtral form"
        )
    if model.inputs == "patches":
        raise ValueError(
            f"model: {model.name} reads images, which this runtime does not train; write 'shardwise auto SCRIPT' "
            "with your own module of it, or a GPT, Llama or Mixtral form"
        )
    extras = ("token_types", "pooler", "head_transform", "embedding_width", "mtp_layers")
    odd = model.inputs != "tokens" or not model.plain_layers or model.norm == "none"
    if odd or any(getattr(model, name) for name in extras):
        raise ValueError(f"model: {model.name} is not a plain decoder; write a GPT, Llama or Mixtral form")
    for layer in model.kinds:
        a = layer.attention
        if a is None or a.sinks or a.gated or a.compressed or not a.causal or a.qk_norm == "full":
            raise ValueError(
                f"model: {model.name} has attention this runtime lacks; write a GPT, Llama or Mixtral form"
            )
        if layer.norms not in (2, 4):
            raise ValueError(f"model: {model.name} has {layer.norms} norms a layer; this runtime runs 2 or 4")
        if policy.tp // min(policy.tp, a.kv_heads) != task.kv_copies:
            raise ValueError(f"tp: {policy.tp} copies key/value heads in some layers only; write a smaller tp")
        if layer.experts is not None and (layer.experts.bias or layer.experts.router_bias):
            raise ValueError(f"model: {model.name} has experts with biases, which this runtime lacks")
        if layer.experts is not None and policy.tp > 1 and not policy.sp:
            raise ValueError("sp: experts with tp need sequence parallelism; leave --no-sp away")
    if model.vocab % policy.tp:
        raise ValueError(f"tp: {policy.tp} does not divide a vocabulary of {model.vocab:,}; write a divisor")
