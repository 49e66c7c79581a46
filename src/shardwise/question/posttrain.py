"""The question of a step of post-training: from options, with a note of what was assumed."""

from dataclasses import dataclass

from msgspec.structs import replace as with_fields

from shardwise.cost.calibrate.profile import profile_of
from shardwise.plan.constraints import constraints_of
from shardwise.plan.posttrain import WIDTHS, PosttrainSpace
from shardwise.registry import closest
from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import products_per_token
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import optimizer_of
from shardwise.spec.lengths import NUMBERS, DataLengths, lengths_of
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.parameters import PosttrainOptions, flag_of, posttrain_parameters
from shardwise.spec.software import known_stack
from shardwise.step.operate.failures import rates_of
from shardwise.step.posttrain.facts import facts
from shardwise.step.posttrain.job import PosttrainJob
from shardwise.step.posttrain.phases import COLOCATED, HYBRID, SPLIT
from shardwise.step.posttrain.rollout import SIGMA, capped_lengths

NAMED = {
    "gsm8k": (325.0, 1024, "verl issue 1208"),
    "math": (3200.0, 3984, "NeMo-RL's performance summary, OpenMathInstruct-2 with Qwen3"),
    "reasoning": (12700.0, 32768, "verl's comparison of asynchronous modes, DAPO-Math-17k"),
}
"""tokens of answers as published: mean, cap, source"""
LAGS = (0, 1, 2, 4)
MOST_LAG = 64
MOST_SEQUENCES = 65_536
"""of a step: each is followed to its end"""
LONGEST = 10**6


@dataclass(frozen=True, kw_only=True)
class PosttrainQuestion:
    space: PosttrainSpace
    stack: str
    """the post-training program"""
    notes: tuple[str, ...]
    steps: int | None = None
    """of the whole run"""
    failures: str = "llama-3"


def posttrain_question(
    model: str | Model, on: str | Cluster, options: PosttrainOptions | None = None
) -> PosttrainQuestion:
    options = options or PosttrainOptions()
    for name, row in posttrain_parameters().items():
        value = getattr(options, name)
        if value is not None:
            row.check(flag_of(name), value)
    notes: list[str] = []
    shape = model if isinstance(model, Model) else model_of(model)
    _check_model(shape)
    if any(layer.mamba or layer.delta for layer in shape.kinds):
        notes.append("recurrent layers: decode reads and writes their states; no such engine was measured")
    cluster = on if isinstance(on, Cluster) else cluster_of(on)
    program = facts().program(options.stack)
    if options.offload is not None:
        program = with_fields(program, offloads=options.offload)
    trainer = known_stack(options.trainer or program.trainer)
    lengths, cap = _answers(options, notes)
    if options.prompts * options.group > MOST_SEQUENCES:
        raise ValueError(
            f"prompts: {options.prompts:,} of {options.group:,} answers each; write at most {MOST_SEQUENCES:,} answers "
            "a step"
        )
    if options.group < 2 and options.algorithm in ("grpo", "rloo"):
        raise ValueError(
            f"group: {options.group}; {options.algorithm} compares the answers to a prompt, write at least 2"
        )
    job = PosttrainJob(
        algorithm=options.algorithm, prompts=options.prompts, group=options.group,
        prompt_tokens=options.prompt_tokens, lengths=lengths, cap=cap, updates=options.updates,
        reference=options.reference, scorer=_scorer(options, shape, notes),
    )  # fmt: skip
    rollout = None if options.rollout_on is None else cluster_of(options.rollout_on)
    if rollout is not None and options.layout == COLOCATED:
        raise ValueError(f"rollout-on: {options.rollout_on!r} cannot be colocated; leave --layout out")
    if options.rollout_gpus is not None and options.rollout_gpus >= cluster.gpus:
        raise ValueError(f"rollout-gpus: {options.rollout_gpus} of {cluster.gpus}; leave some that train")
    rolls = cluster if rollout is None else rollout
    if options.engine_tp is not None and not _whole_heads(shape, options.engine_tp, rolls.gpus):
        heads = min(kind.attention.heads for kind in shape.kinds if kind.attention)
        raise ValueError(
            f"engine-tp: {options.engine_tp} does not divide {heads} heads on at most {rolls.gpus} GPUs; write 1, 2, 4 "
            "or 8"
        )
    notes.append(f"{options.stack}: {program.source}")
    space = PosttrainSpace(
        model=shape, cluster=cluster, job=job, program=program, stack=trainer,
        precision=trainer.precision(options.precision), optimizer=optimizer_of(options.optimizer or "adamw"),
        rollout_precision=options.rollout_precision, rollout_cluster=rollout,
        modes=_modes(options, program.lends), lags=_lags(options.lag),
        rollout_gpus=options.rollout_gpus, widths=WIDTHS if options.engine_tp is None else (options.engine_tp,),
        share=options.engine_share, only=constraints_of(options.fix or ()),
        profile=None if options.profile is None else profile_of(options.profile),
    )  # fmt: skip
    rates_of(options.failures, cluster.gpus)  # refuses what it cannot read before anything is searched
    return PosttrainQuestion(
        space=space, stack=options.stack, notes=tuple(notes), steps=options.steps, failures=options.failures
    )


def _modes(options: PosttrainOptions, lends: bool) -> tuple[str, ...]:
    if options.layout == HYBRID and not lends:
        raise ValueError(f"layout: {options.stack} does not lend trainers to rollout; write split, or --stack verl")
    every = (COLOCATED, SPLIT, HYBRID) if lends else (COLOCATED, SPLIT)
    return every if options.layout == "any" else (options.layout,)


def _scorer(options: PosttrainOptions, policy: Model, notes: list[str]) -> float:
    """Products of a reward model over those of the policy."""
    if options.reward_model is None:
        return 0.0
    if options.algorithm in ("dpo", "distill"):
        raise ValueError(f"reward-model: {options.algorithm} rewards nothing; leave it out")
    scorer = model_of(options.reward_model)
    if scorer.inputs != "tokens":
        raise ValueError(f"reward-model: {scorer.name} reads {scorer.inputs}; write a language model")
    notes.append(
        f"reward: {scorer.name} scores at the speed of the trainer's passes, and waits in host memory otherwise"
    )
    return products_per_token(scorer) / products_per_token(policy)


def _whole_heads(model: Model, tp: int, gpus: int) -> bool:
    return tp <= gpus and all(kind.attention is None or kind.attention.heads % tp == 0 for kind in model.kinds)


def _check_model(model: Model) -> None:
    """What the decode laws do not know is refused."""
    if model.inputs != "tokens":
        raise ValueError(f"model: {model.name} reads {model.inputs}; write a language model")
    for layer in model.kinds:
        if layer.mixer or layer.cross or (layer.attention and layer.attention.compressed):
            raise ValueError(
                f"model: {model.name} has layers whose decode is not priced (a compressed cache or cross attention); "
                "write a model of plain, grouped or latent attention, Mamba-2 or the gated delta rule"
            )


def _answers(options: PosttrainOptions, notes: list[str]) -> tuple[DataLengths, int]:
    text = options.lengths.strip()
    head = text.partition(",")[0].strip()
    if text in NAMED:
        mean, cap, source = NAMED[text]
        notes.append(f"lengths: {text} has answers of {mean:,.0f} tokens, at most {cap:,} ({source})")
        return _capped(mean, options.cap or cap, notes), options.cap or cap
    if head.replace(".", "", 1).isdigit() and "=" not in text:
        numbers = [word.strip() for word in text.split(",")]
        if len(numbers) != 2 or not numbers[1].isdigit():
            raise ValueError(f"lengths: {text!r} is not MEAN,CAP; write for example 3000,8192")
        cap = options.cap or int(numbers[1])
        return _capped(float(numbers[0]), cap, notes), cap
    if "," not in text and "." not in text and "/" not in text and head not in NUMBERS and text.isalpha():
        raise ValueError(f"lengths: {text!r} is unknown; {closest(text, list(NAMED))}, or write MEAN,CAP or a file")
    lengths = lengths_of(text)
    if options.cap is None and not lengths.counted:
        raise ValueError(f"cap: {text!r} has no longest answer; write --cap 8192")
    return lengths, options.cap or max(lengths.counted)


def _capped(mean: float, cap: int, notes: list[str]) -> DataLengths:
    if cap > LONGEST:
        raise ValueError(f"cap: {cap:,} tokens; write at most {LONGEST:,}")
    notes.append(
        f"answers: log-normal with sigma {SIGMA:g} (not measured), cut at {cap:,}; a file of lengths is better"
    )
    return capped_lengths(mean, cap)


def _lags(text: str) -> tuple[int, ...]:
    if text == "any":
        return LAGS
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) <= MOST_LAG for word in words):
        raise ValueError(f"lag: {text!r} is not a number of steps; write 0, 1, 2 or any")
    return tuple(sorted({int(word) for word in words}))
