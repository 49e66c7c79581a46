"""Every parameter of a question, once: its name, type, unit, range, default, and what it acts on.

The flags of every verb, the page's forms, the tools of agents, docs/cli.md and `question_of` read this table; nothing
else lists its parameters. None means that nobody stated the parameter; the row says what is then assumed.
"""

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from shardwise.plugins.optimizers import USUAL, optimizer_names
from shardwise.spec.job import NO_FAILURES, PRECISIONS, USUAL_FAILURES
from shardwise.spec.lengths import PACKINGS
from shardwise.spec.parameter import CLUSTER, JOB, OVERLAP, POLICY, PROGRAM, SPACE, Parameter
from shardwise.spec.policy import ATTENTION, LOSS, MATRIX_LAYOUT, MODULES, OFFLOAD, ORDERS, RECOMPUTE, SHARES, ZERO
from shardwise.spec.software.dispatcher import DISPATCH
from shardwise.spec.software.graphs import GRAPHS
from shardwise.spec.software.parts import ATTENTION_SPLITS, CONTEXT, EMBEDDINGS

SCHEDULES = (
    "none", "gpipe", "1f1b", "interleaved", "looped_bfs", "zero_bubble_h1", "interleaved_zero_bubble", "zb_v",
    "dualpipe", "dualpipe_v", "overlapped",
)  # fmt: skip
"""written out, since looking for plug-ins takes long; a test compares them with the plug-ins"""
RECIPES = tuple(name for name in PRECISIONS if "-" in name or name == "autocast")
Switch = bool | None


ON = Parameter(acts_on=CLUSTER, usual=True, help="dgx-h100:1024, 8xh100, 4x8xh100 or a YAML file.")
MODEL = "A catalog name, a Hugging Face id, or a path to a config.json."


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CaseOptions:
    """Cluster, job and program of a question, besides the cluster's name and the precision."""

    nic: Annotated[str | None, Parameter(
        acts_on=CLUSTER, unit="bit/s", default="the fabric's own",
        help="NICs, as '100Gbps/node', '400Gbps/gpu' or '8x400Gbps' a node.",
    )] = None
    host_memory: Annotated[str | None, Parameter(
        acts_on=CLUSTER, unit="bytes", default="the fabric's, or 128 GiB per GPU", least=0,
        help="Host memory of a node for offloaded state: '1 TiB'.",
    )] = None
    profile: Annotated[Path | None, Parameter(
        acts_on=CLUSTER, default="shardwise.toml here, or ~/.config/shardwise/profile.toml",
        help="A profile that `learn` or `calibrate` wrote, besides the catalog's rates.",
    )] = None
    no_profile: Annotated[bool, Parameter(
        acts_on=CLUSTER, default="a profile there is used",
        help="The catalog's rates, whatever profile lies in the usual places.",
    )] = False

    seq: Annotated[str | None, Parameter(
        acts_on=JOB, unit="tokens", default="the model's own positions, at most 8192", least=1, usual=True,
        help="Sequence length, 4096 or 32k (32,768).",
    )] = None
    global_batch: Annotated[str | None, Parameter(
        acts_on=JOB, unit="sequences", least=1, usual=True,
        default="64k tokens (2^16) per GPU, at most 4M, beyond 4,096 GPUs 16M; 4,096 images",
        help="Sequences per step, or '4M tokens'.",
    )] = None
    optimizer: Annotated[str | None, Parameter(
        acts_on=JOB, default=USUAL, choices=optimizer_names, open=True, help="{choices}.",
    )] = None
    tokens: Annotated[str | None, Parameter(
        acts_on=JOB, unit="tokens", usual=True, default="none; of size and operate 20 per parameter",
        help="Tokens to train on in all, such as 15T: adds days and dollars.",
    )] = None
    failures: Annotated[str | None, Parameter(
        acts_on=JOB, default=USUAL_FAILURES, choices=("llama-3", "rsc-1", "rsc-2", "opt-175b", NO_FAILURES), open=True,
        help="How often the whole run is stopped: {choices} as published, '419/16384x54d' as you counted, or "
        "'3.1 h' between two.",
    )] = None
    grad_dtype: Annotated[str | None, Parameter(
        acts_on=JOB, default="the precision's", choices=("bf16", "fp32"), open=True,
        help="bf16 or fp32: gradients added up and reduced.",
    )] = None
    tune: Annotated[str | None, Parameter(
        acts_on=JOB, default="full", choices=("full", "lora", "dora", "qlora"), open=True,
        help="{choices}; with rank=16, targets=attention, mlp, all or modules (q_proj,v_proj).",
    )] = None
    freeze: Annotated[str | None, Parameter(
        acts_on=JOB, default="nothing", help="Parts that are not trained: embeddings, first=8 (layers), vision.",
    )] = None
    lengths: Annotated[str | None, Parameter(
        acts_on=JOB, default="all as long as --seq",
        help="How long the sequences are: a file with a length on each line, or lognormal,mean=600,sigma=1; "
        "--seq cuts them.",
    )] = None
    packing: Annotated[str | None, Parameter(
        acts_on=JOB, default="off", choices=PACKINGS,
        help="With --lengths: off (padded), on (several in a buffer of --seq tokens), dynamic (packed, and long "
        "ones over more context-parallel ranks).",
    )] = None
    uneven: Annotated[bool, Parameter(
        acts_on=JOB, default="off", help="Where the batch does not divide, some replicas take one micro-batch more.",
    )] = False
    pipeline_passes: Annotated[int | None, Parameter(
        acts_on=JOB, default="1", least=1,
        help="Times a step fills and drains its pipeline, each with an equal part of the batch (a local batch of "
        "torchtitan or NeMo Automodel); 1: the whole batch at once.",
    )] = None

    stack: Annotated[str | None, Parameter(
        acts_on=PROGRAM, default="megatron-core; jax on TPUs; shardwise for a perceptron", usual=True,
        help="Program assumed, or PROGRAM@RELEASE (`catalog programs` lists them), or 'software=TEXT' as in a table.",
    )] = None
    imbalance: Annotated[float | None, Parameter(
        acts_on=PROGRAM, default="the stack's", least=1, most=1000, cure="1 (balanced) or more, such as 1.5",
        help="Tokens of the fullest expert rank over the mean.",
    )] = None
    dispatcher: Annotated[str | None, Parameter(
        acts_on=PROGRAM, default="the stack's", choices=tuple(DISPATCH), open=True,
        help="How tokens reach their experts: {choices}.",
    )] = None
    graphs: Annotated[str | None, Parameter(
        acts_on=PROGRAM, default="the stack's", choices=GRAPHS,
        help="What is replayed as CUDA graphs, so that the host launches less: {choices}.",
    )] = None
    context_parallel: Annotated[str | None, Parameter(
        acts_on=PROGRAM, default="the stack's", choices=CONTEXT,
        help="How attention goes over --cp ranks: {choices} (of keys and values).",
    )] = None
    embedding: Annotated[str | None, Parameter(
        acts_on=PROGRAM, default="vocab", choices=EMBEDDINGS,
        help="Where the table of words lies: {choices} (whole on the first --tp rank, which sends the vectors).",
    )] = None
    attention_split: Annotated[str | None, Parameter(
        acts_on=PROGRAM, default="heads", choices=ATTENTION_SPLITS,
        help="How attention is cut over --tp ranks: {choices} (queries and keys gathered, values local).",
    )] = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PolicyOptions:
    """The policy, or what every policy of a search has."""

    tp: Annotated[int | None, Parameter(
        acts_on=POLICY, default="1", least=1, usual=True, help="Tensor parallel.",
    )] = None
    pp: Annotated[int | None, Parameter(
        acts_on=POLICY, default="1", least=1, usual=True, help="Pipeline stages.",
    )] = None
    dp: Annotated[int | None, Parameter(
        acts_on=POLICY, default="the rest of the GPUs", least=1, help="Data parallel.",
    )] = None
    cp: Annotated[int | None, Parameter(acts_on=POLICY, default="1", least=1, help="Context parallel.")] = None
    ep: Annotated[int | None, Parameter(
        acts_on=POLICY, default="1", least=1, usual=True, help="Expert parallel (inside dp x cp x tp).",
    )] = None
    vpp: Annotated[int | None, Parameter(
        acts_on=POLICY, default="1", least=1, help="Chunks per stage; above 1: interleaved schedule.",
    )] = None
    etp: Annotated[int | None, Parameter(
        acts_on=POLICY, default="0", least=0, help="Tensor parallel inside an expert; 0: as tp without ep, else 1.",
    )] = None
    zero: Annotated[int | None, Parameter(
        acts_on=POLICY, default="1", least=ZERO[0], most=ZERO[-1], cure="0, 1, 2 or 3", usual=True,
        help="ZeRO stage 0 to 3 (3: FSDP).",
    )] = None
    sp: Annotated[Switch, Parameter(
        acts_on=POLICY, default="on", off="--no-sp", help="Sequence parallel with tp.",
    )] = None
    micro: Annotated[int | None, Parameter(
        acts_on=POLICY, unit="sequences", default="1; of a perceptron all of a rank's examples", least=1, usual=True,
        help="Sequences per micro-batch.",
    )] = None
    recompute: Annotated[str | None, Parameter(
        acts_on=POLICY, default="none", choices=RECOMPUTE, usual=True, help="{choices}.",
    )] = None
    recompute_layers: Annotated[int | None, Parameter(
        acts_on=POLICY, unit="layers", default="-1", least=-1, help="Layers of each stage that recompute; -1: all.",
    )] = None
    recompute_modules: Annotated[str | None, Parameter(
        acts_on=POLICY, default="the program's own", choices=MODULES, open=True,
        help="Modules that selective recompute repeats: {choices}.",
    )] = None
    schedule: Annotated[str | None, Parameter(
        acts_on=POLICY, default="1f1b, with --vpp interleaved", choices=SCHEDULES, open=True, help="{choices}.",
    )] = None
    shard_group: Annotated[int | None, Parameter(
        acts_on=POLICY, unit="ranks", default="0", least=0, help="Ranks ZeRO shards over (HSDP); 0: all.",
    )] = None
    offload: Annotated[str | None, Parameter(acts_on=POLICY, default="none", choices=OFFLOAD, help="{choices}.")] = None
    offload_share: Annotated[float | None, Parameter(
        acts_on=POLICY, default="1", least=1 / SHARES, most=1,
        help="Share of the optimizer, or of the layers, that --offload moves.",
    )] = None
    attention: Annotated[str | None, Parameter(
        acts_on=POLICY, default="flash", choices=ATTENTION, help="{choices}.",
    )] = None
    loss: Annotated[str | None, Parameter(
        acts_on=POLICY, default="the stack's", choices=LOSS, help="{choices} loss over the vocabulary.",
    )] = None
    matrix_layout: Annotated[str | None, Parameter(
        acts_on=POLICY, default="the program's own; a search compares those that train alike", choices=MATRIX_LAYOUT,
        help="Where muon, soap and shampoo update whole matrices that ranks share: {choices}.",
    )] = None
    order: Annotated[str | None, Parameter(
        acts_on=POLICY, default=ORDERS[0], choices=ORDERS,
        help="Axes on neighbouring ranks, innermost first: {choices}.",
    )] = None
    overlap_grad: Annotated[Switch, Parameter(
        acts_on=OVERLAP, default="the stack's", off="--no-overlap-grad",
        help="Gradients are reduced during the backward pass.",
    )] = None
    overlap_param: Annotated[Switch, Parameter(
        acts_on=OVERLAP, default="the stack's", off="--no-overlap-param",
        help="Parameters are gathered during the forward pass.",
    )] = None
    overlap_tp: Annotated[Switch, Parameter(
        acts_on=OVERLAP, default="the stack's", off="--no-overlap-tp",
        help="Tensor-parallel collectives run under GEMMs.",
    )] = None
    overlap_pp: Annotated[Switch, Parameter(
        acts_on=OVERLAP, default="the stack's", off="--no-overlap-pp",
        help="Transfers between stages run under compute.",
    )] = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SpaceOptions:
    """Which policies a search may take."""

    fix: Annotated[list[str] | None, Parameter(
        acts_on=SPACE, flag="fix", also=("--bound",), repeats=True, usual=True, default="every legal policy",
        help="Only such policies: tp=8, 'pp<=8'; may repeat.",
    )] = None
    headroom: Annotated[float | None, Parameter(
        acts_on=SPACE, default="0.94", least=0, above=True, most=1, cure="a share of the memory above 0 and at most 1",
        help="Share of a GPU's memory a policy may fill.",
    )] = None
    risk: Annotated[float | None, Parameter(
        acts_on=SPACE, default="0.05", least=0, above=True, most=1,
        cure="the accepted risk of running out of memory, above 0 and at most 1, such as 0.1",
        help="Accepted risk of running out of memory: 0.1 is one run in ten.",
    )] = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SharedOptions(SpaceOptions, PolicyOptions, CaseOptions):
    """All of a question but its model and cluster, and but what some verbs take several of: precision and sync."""


@dataclass(frozen=True, kw_only=True)
class Options(SharedOptions):
    """All of a question but its model and cluster."""

    precision: Annotated[str | None, Parameter(
        acts_on=JOB, default="bf16; fp32 for a perceptron", usual=True, open=True,
        choices=("bf16", "fp16", "fp8", "fp8-rowwise", "fp8-blockwise", "mxfp8", "nvfp4"),
        help="{choices}: as --stack keeps and sends them; fp32, tf32; or a recipe: "
        + ", ".join(RECIPES)
        + ".",
    )] = None
    sync: Annotated[str | None, Parameter(
        acts_on=POLICY, default="the mean gradient",
        help="Data parallelism that sends less: NAME[,setting=value...], as in `sync list`; plan, size and sweep "
        "search: any, or NAME,NAME...",
    )] = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PosttrainOptions:
    """A step of post-training, besides model and cluster: what is asked for, and which layouts may be taken."""

    algorithm: Annotated[str, Parameter(
        acts_on=JOB, default="grpo", choices=("grpo", "ppo", "rloo", "dpo", "distill"), usual=True, help="{choices}.",
    )] = "grpo"
    prompts: Annotated[int, Parameter(
        acts_on=JOB, unit="sequences", default="64", least=1, usual=True, help="Prompts of a step.",
    )] = 64
    group: Annotated[int, Parameter(
        acts_on=JOB, unit="sequences", default="16", least=1, usual=True, help="Answers to each prompt.",
    )] = 16
    lengths: Annotated[str, Parameter(
        acts_on=JOB, default="3000,8192", usual=True,
        help="Tokens of answers: 'MEAN,CAP', a NAME (gsm8k, math, reasoning), a file with a length on each line, or "
        "lognormal,mean=600,sigma=1.",
    )] = "3000,8192"
    cap: Annotated[int | None, Parameter(
        acts_on=JOB, unit="tokens", default="that of --lengths, or its longest", least=1,
        help="Longest answer; longer ones are cut.",
    )] = None
    prompt_tokens: Annotated[int, Parameter(
        acts_on=JOB, unit="tokens", default="512", least=1, help="Tokens of a prompt.",
    )] = 512
    updates: Annotated[int, Parameter(
        acts_on=JOB, default="1", least=1, help="Optimizer steps of a step: mini-batches its answers are cut into.",
    )] = 1
    reference: Annotated[Switch, Parameter(
        acts_on=JOB, default="as the algorithm has it", off="--no-reference",
        help="Log-probabilities of a frozen model are computed.",
    )] = None
    reward_model: Annotated[str | None, Parameter(
        acts_on=JOB, default="a rule", help="Model that scores each answer, in one pass on the trainer's GPUs.",
    )] = None
    optimizer: Annotated[str | None, Parameter(
        acts_on=JOB, default=USUAL, choices=optimizer_names, open=True, help="{choices}.",
    )] = None
    precision: Annotated[str, Parameter(
        acts_on=JOB, default="bf16", open=True, choices=("bf16", "fp8"), help="Of the trainer: {choices}.",
    )] = "bf16"
    rollout_precision: Annotated[str, Parameter(
        acts_on=JOB, default="bf16", choices=("bf16", "fp8"), help="Of the engine's weights and products: {choices}.",
    )] = "bf16"
    stack: Annotated[str, Parameter(
        acts_on=PROGRAM, default="nemo-rl", choices=("nemo-rl", "verl", "openrlhf", "trl", "prime-rl"), usual=True,
        help="Program: {choices}.",
    )] = "nemo-rl"
    profile: Annotated[Path | None, Parameter(
        acts_on=CLUSTER, default="the catalog's rates",
        help="A profile that `calibrate` wrote, instead of the catalog's rates.",
    )] = None
    rollout_on: Annotated[str | None, Parameter(
        acts_on=CLUSTER, default="the same GPUs", help="Other GPUs that only roll out: 32xh20, while --on trains.",
    )] = None
    layout: Annotated[str, Parameter(
        acts_on=SPACE, default="any", choices=("any", "colocated", "split", "hybrid"), usual=True,
        help="any; colocated (both on all GPUs, in turn); split (each on its own); hybrid (split, and trainers roll "
        "out while they would wait).",
    )] = "any"
    lag: Annotated[str, Parameter(
        acts_on=SPACE, default="any", usual=True,
        help="Steps that answers may be older than the weights they train: 0 (on-policy), 1, 2, ... or any.",
    )] = "any"
    rollout_gpus: Annotated[int | None, Parameter(
        acts_on=SPACE, default="searched", least=1, help="GPUs that roll out in a split layout.",
    )] = None
    engine_tp: Annotated[int | None, Parameter(
        acts_on=SPACE, default="searched", least=1, help="GPUs of one engine.",
    )] = None
    engine_share: Annotated[float | None, Parameter(
        acts_on=SPACE, default="the program's", least=0, above=True, most=1, cure="a share above 0 and at most 1",
        help="Share of a GPU's memory an engine may fill.",
    )] = None
    trainer: Annotated[str | None, Parameter(
        acts_on=PROGRAM, default="the program's usual one",
        help="Program that updates: megatron-core, torch-fsdp2, deepspeed; `catalog programs` lists them.",
    )] = None
    offload: Annotated[Switch, Parameter(
        acts_on=PROGRAM, default="as the program does", off="--no-offload",
        help="On shared GPUs the trainer's state waits in host memory while the engine runs.",
    )] = None
    steps: Annotated[int | None, Parameter(
        acts_on=JOB, least=1, most=10**9, default="none", usual=True, help="Steps of the run: adds its days and cost.",
    )] = None
    failures: Annotated[str, Parameter(
        acts_on=CLUSTER, default="llama-3", help="How often GPUs fail in --steps: as `operate` reads it.")] = "llama-3"
    fix: Annotated[list[str] | None, Parameter(
        acts_on=SPACE, flag="fix", repeats=True, default="every legal policy",
        help="Only such policies of the trainer: tp=8, 'pp<=8'; may repeat.",
    )] = None
# fmt: on


@cache
def posttrain_parameters() -> dict[str, Parameter]:
    """Rows of PosttrainOptions by field name."""
    hints = get_type_hints(PosttrainOptions, include_extras=True)
    return {each.name: row_of(hints[each.name]) for each in fields(PosttrainOptions)}


@cache
def parameters() -> dict[str, Parameter]:
    """Every row by its field's name, in the order of the table."""
    hints = get_type_hints(Options, include_extras=True)
    return {each.name: row_of(hints[each.name]) for each in fields(Options)}


def row_of(hint: Any) -> Parameter:
    return next(each for each in get_args(hint) if isinstance(each, Parameter))


def flag_of(name: str) -> str:
    return name.replace("_", "-")


def check_value(name: str, value: object) -> None:
    if value is not None:
        parameters()[name].check(flag_of(name), value)


def check_options(options: CaseOptions) -> None:
    for name in stated(options):
        check_value(name, getattr(options, name))


def stated(options: CaseOptions, *acts_on: str) -> tuple[str, ...]:
    """Fields that somebody stated, of those that act on one of these; on anything, where none is named."""
    found = []
    for name, row in parameters().items():
        value = getattr(options, name, None)
        if (not acts_on or row.acts_on in acts_on) and value is not None and (value is not False or row.off):
            found.append(name)
    return tuple(found)
