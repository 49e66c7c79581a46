"""torchtitan: TOML until 0.2.2; from 0.3.0 a config function's name and flags, on its main branch in tokens."""

import re
from typing import Any

from shardwise.plugins.optimizers import read_from, spelling_in
from shardwise.programs.formats._contract import Format, Found, Known, Lack, Launch, Written, own_overlaps
from shardwise.programs.formats._layout import chunks_of, is_even, passes_of
from shardwise.programs.formats._scripts import configured, network_environment, script
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import degrees, gaps, read
from shardwise.programs.formats._shell_words import shown_word
from shardwise.programs.formats._toml import toml_text
from shardwise.spec.policy import Policy

STACK = "torchtitan"
FLAVORS = r"(?:meta-)?(llama)-?3(?:\.1)?-(8b|70b|405b)|(qwen)-?3-(0\.6b|1\.7b|4b|8b|14b|32b|30b-a3b|235b-a22b)"
"""models that release 0.2.2 has under a name of its own"""
TOML, FLAGS, TOKENS = VERSIONS = ("0.2.2", "0.3.0", "main")
SCHEDULES = {
    "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe", "looped_bfs": "LoopedBFS",
    "interleaved_zero_bubble": "InterleavedZeroBubble", "zb_v": "ZBVZeroBubble", "dualpipe_v": "DualPipeV",
}  # fmt: skip
"""names of torch 2.13's schedules"""
BY_NAME = {name: schedule for schedule, name in SCHEDULES.items()}
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
QUANTIZED = {
    "tensor": ("quantize.linear.float8", "tensorwise"), "row": ("quantize.linear.float8", "rowwise"),
    "mx": ("quantize.linear.mx", "mxfp8_cublas"),
}  # fmt: skip
"""where its files state products in 8 bits, by what shares a scale, and the recipe's name there"""


def _own(version: str) -> dict[str, Any]:
    # the model configurations of 0.3.0 and later have the chunked loss
    found = own_overlaps(STACK, "overlap_grad", "overlap_param", "overlap_pp")
    found["loss"] = "plain" if version == TOML else "chunked"
    return found | ({"sp": True} if version == TOML else {})


def _gaps(launch: Launch) -> list[Lack]:
    policy, found = launch.policy, gaps(launch)
    toml = launch.version == TOML
    if not is_even(chunks_of(launch)) and not toml:
        found.append(Lack("pp", policy.pp, "uneven stages are stated in its TOML form (--version 0.2.2) only"))
    if policy.etp and not (toml and policy.ep > 1 and policy.etp == policy.tp):
        found.append(Lack("etp", policy.etp, "experts are cut by 1, and up to 0.2.2 by tp"))
    if launch.case.job.precision.compute not in ("bf16", "fp32", "fp8") or (
        launch.case.job.precision.compute == "fp8" and not (toml and launch.case.job.precision.scaling in QUANTIZED)
    ):
        raise ValueError(
            f"precision: {launch.case.job.precision.name} is not stated in torchtitan's {launch.version} files; "
            "write bf16, fp32, or fp8, fp8-rowwise or mxfp8 with --version 0.2.2"
        )
    if launch.case.job.optimizer.name == "muon":
        raise ValueError(
            "optimizer: torchtitan takes muon as DistMuon in Python (optimizer_name of its param_groups, a compute "
            "layout for each), not in flags or TOML; write adamw, and add the groups as its kimi_k2_7 recipe does"
        )
    spelling_in("torchtitan", launch.case.job.optimizer.name)
    return found


def _sections(launch: Launch) -> dict[str, dict[str, Any]]:
    policy, job = launch.policy, launch.case.job
    replicate, shard = degrees(policy)
    chunks = chunks_of(launch)
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": replicate, "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "never" if policy.zero == 2 else "always",
        "tensor_parallel_degree": policy.tp, "context_parallel_degree": policy.cp,
        "pipeline_parallel_degree": policy.pp, "expert_parallel_degree": policy.ep,
    }  # fmt: skip
    if launch.version == TOML:
        parallelism["enable_async_tensor_parallel"] = policy.overlap_tp
        if policy.ep > 1:
            parallelism["expert_tensor_parallel_degree"] = policy.etp or 1
    elif policy.tp > 1:
        parallelism["enable_sequence_parallel"] = policy.sp
    if policy.pp > 1:
        parallelism["pipeline_parallel_schedule"] = SCHEDULES[policy.schedule]
        if is_even(chunks):
            # by default the first and the last stage have a layer less
            parallelism |= {
                "pipeline_parallel_layers_per_stage": chunks[0], "pipeline_parallel_first_stage_less_layers": 0,
                "pipeline_parallel_last_stage_less_layers": 0,
            }  # fmt: skip
        else:
            parallelism["module_fqns_per_model_part"] = _parts(chunks)
    micro_batches = job.global_batch // (policy.dp * policy.micro_batch * job.pipeline_passes)
    if launch.version == TOKENS:
        training = {
            "num_tokens_per_microbatch_per_dp_rank": policy.micro_batch * job.seq,
            "num_tokens_per_train_step": job.global_batch * job.seq, "max_context_length": job.seq,
        }  # fmt: skip
        if policy.pp > 1:
            parallelism["num_pp_microbatches"] = micro_batches
    else:
        local = policy.micro_batch * (micro_batches if policy.pp > 1 else 1)
        training = {"local_batch_size": local, "global_batch_size": job.global_batch, "seq_len": job.seq}
        if policy.pp > 1:
            parallelism["pipeline_parallel_microbatch_size"] = policy.micro_batch
    return {"training": training, "parallelism": parallelism}


def _parts(chunks: tuple[int, ...]) -> list[list[str]]:
    """Modules of each chunk, as its language models call them."""
    parts, layer = list[list[str]](), 0
    for count in chunks:
        parts.append([f"layers.{number}" for number in range(layer, layer + count)])
        layer += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts


def _write(launch: Launch) -> Written:
    found = _sections(launch)
    dtype = DTYPES.get(launch.case.job.precision.compute, "bfloat16")
    found["training"]["mixed_precision_param"] = dtype
    environment = network_environment(launch.case.cluster, launch.cards)
    if launch.version == TOML:
        return _toml(launch, found, environment)
    notes = ("TITAN_MODULE and TITAN_CONFIG name the model's folder and its configuration: llama3 and llama3_8b, say",)
    words = ["--module", "${TITAN_MODULE:?}", "--config", "${TITAN_CONFIG:?}"]
    flags = {f"{section}.{key}": value for section, values in found.items() for key, value in values.items()}
    flags |= {"compile.enable": True}
    if launch.policy.overlap_tp:
        flags["compile.enable_async_tensor_parallel"] = True
    if launch.policy.pp > 1:
        flags["training.disable_cuda_graphs"] = True  # its parser refuses stages with them
    for flag, value in flags.items():
        section, _, key = flag.partition(".")
        # a switch that is on by default is turned off by its opposite
        words += [
            f"--{section}.{'no_' if value is False else ''}{key}",
            *([] if isinstance(value, bool) else [str(value)]),
        ]
    words.append(f"activation_checkpoint:{launch.policy.recompute}")
    text = script(launch, "-m torchtitan.train", {"ARGS": words}, environment, notes)
    return Written({"train.sh": text}, environment, notes)


def _toml(launch: Launch, found: dict[str, dict[str, Any]], environment: dict[str, str]) -> Written:
    policy, job = launch.policy, launch.case.job
    name = launch.called or launch.case.model.name
    own = re.fullmatch(FLAVORS, name.lower().rpartition("/")[2])
    notes = () if own else (f"the model is named by you: replace what stands for {name}",)
    model: dict[str, Any] = {"name": "llama3", "flavor": name}
    if own is not None:
        model = {"name": f"{own[1] or own[3]}3", "flavor": (own[2] or own[4]).upper()}
    sections: dict[str, Any] = {"job": {"description": f"{launch.case.model.name} on {launch.case.cluster.name}"}}
    quantize: dict[str, Any] = {}
    if job.precision.compute == "fp8":
        section, recipe = QUANTIZED[job.precision.scaling]
        model["converters"] = [section]
        quantize[section] = {"recipe_name": recipe}
    recompute: dict[str, Any] = {"mode": policy.recompute}
    if policy.recompute == "selective":
        recompute["selective_ac_option"] = "op"
    sections |= {
        "model": model, "optimizer": {"name": spelling_in("torchtitan", job.optimizer.name)}, **found,
        "activation_checkpoint": recompute, "compile": {"enable": True}, **quantize,
    }  # fmt: skip
    text, words = "".join(f"# {note}\n" for note in notes) + toml_text(sections), ["--job.config_file", "train.toml"]
    return configured(launch, words[1], text, "-m torchtitan.train", words, environment, notes)


def _claims(settings: FileSettings) -> bool:
    return any(name.startswith("parallelism.") and "_parallel_" in name for name in settings.names())


def _read(settings: FileSettings, known: Known) -> Found:
    def whole(name: str, default: int = 1) -> int:
        return settings.whole(f"parallelism.{name}", default)

    _need_all(settings)
    tp, cp, pp = whole("tensor_parallel_degree"), whole("context_parallel_degree"), whole("pipeline_parallel_degree")
    replicate = whole("data_parallel_replicate_degree")
    shard = settings.whole("parallelism.data_parallel_shard_degree", -1, least=-1)
    notes = list[str]()
    gpus: int | None = 0
    if shard < 1:
        gpus = known.gpus
        if known.gpus is None:
            notes.append("the file does not say how many GPUs: one shard is assumed")
        shard = max((known.gpus or 1) // (tp * cp * pp * replicate), 1)
    reshard = settings.text("parallelism.fsdp_reshard_after_forward", "default")
    zero, group = read(replicate * shard, shard, cp, reshard == "always" or (reshard == "default" and pp == 1), gpus)
    tokens = settings.has("training.num_tokens_per_microbatch_per_dp_rank")
    old = any(settings.has(name) for name in ("model.flavor", "job.description", "activation_checkpoint.mode"))
    version = TOKENS if tokens else TOML if old else FLAGS
    vpp = _vpp(settings, known, pp)
    policy = Policy(
        dp=replicate * shard, tp=tp, cp=cp, pp=pp, vpp=vpp, ep=whole("expert_parallel_degree"),
        etp=whole("expert_tensor_parallel_degree", 0) if old else 0, zero=zero, shard_group=group,
        schedule=settings.choice("parallelism.pipeline_parallel_schedule", BY_NAME, "1f1b"),
        recompute=_recompute(settings, old), micro_batch=_micro(settings, pp),
        overlap_tp=any(settings.flag(f"{place}.enable_async_tensor_parallel") for place in ("parallelism", "compile")),
        **{**_own(version), "sp": _sequence(settings)},
    )  # fmt: skip
    seq = settings.whole("training.max_context_length" if tokens else "training.seq_len", 0)
    batch = settings.whole(
        "training.num_tokens_per_train_step" if tokens else "training.global_batch_size", 0, least=-1
    )
    if settings.flag("training.enable_cpu_offload"):
        notes.append("parameters, gradients and optimizer offloaded together are not modelled")
    settings.text("compile.enable")
    sequences = (batch // seq if tokens and seq else batch) if batch > 0 else None
    return Found(
        policy=policy,
        version=version,
        gpus=None if gpus is None else policy.gpus,
        seq=seq or None,
        notes=tuple(notes),
        layers=_layers(settings),
        global_batch=sequences,
        pipeline_passes=passes_of(sequences, policy.dp * _at_once(settings, policy), pp),
        precision=_precision(settings),
        optimizer=read_from("torchtitan", settings.text("optimizer.name")),
        software=_software(settings, policy),
    )


def _need_all(settings: FileSettings) -> None:
    """From 0.3.0 a function of its Python, named by --config, sets what no flag states: nothing of it is guessed."""
    needed = (
        ("training.seq_len", "training.max_context_length"),
        ("training.local_batch_size", "training.num_tokens_per_microbatch_per_dp_rank"),
    )
    stated = all(settings.first(*names) for names in needed)
    if settings.has("config") and not stated and not settings.has("job.config_file"):
        raise ValueError(
            f"{settings.where}: --config {shown_word(str(settings.values['config']))} is a function in torchtitan's "
            "Python, which is not read; add its values as flags (--training.seq_len, --training.local_batch_size, "
            "--parallelism...), or name a TOML file of torchtitan 0.2.2"
        )


def _software(settings: FileSettings, policy: Policy) -> dict[str, Any]:
    rotates = {"allgather": "gather", "alltoall": "ring"}
    kind = settings.choice("parallelism.context_parallel_rotate_method", rotates, "")
    sends = {"standard": "alltoall", "deepep": "flex", "hybridep": "flex"}
    name = settings.choice("parallelism.expert_parallel_comm_backend", sends, "")
    found = {"context_parallel": kind if policy.cp > 1 else "", "dispatcher": name if policy.ep > 1 else ""}
    return {name: value for name, value in found.items() if value}


def _vpp(settings: FileSettings, known: Known, pp: int) -> int:
    if parts := _layers(settings):
        return max(len(parts) // pp, 1)
    each = settings.whole_or_none("parallelism.pipeline_parallel_layers_per_stage")
    less = sum(
        settings.whole(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 1, least=0)
        for end in ("first", "last")
    )
    looped = settings.text("parallelism.pipeline_parallel_schedule", "1F1B") not in ("1F1B", "GPipe")
    if each is None or pp == 1 or not known.layers:
        return 2 if looped and pp > 1 else 1
    return max(-(-(known.layers + less) // each) // pp, 1)


def _layers(settings: FileSettings) -> tuple[int, ...]:
    name = "parallelism.module_fqns_per_model_part"
    if not settings.has(name):
        return ()
    return tuple(part.count("layers.") for part in str(settings.text(name)).strip("[]").split("], ["))


def _recompute(settings: FileSettings, old: bool) -> str:
    words = {"none": "none", "full": "full", "selective": "selective"}
    if old:
        settings.text("activation_checkpoint.selective_ac_option")
        return str(settings.choice("activation_checkpoint.mode", words, "selective"))
    return str(settings.choice("activation_checkpoint", words, "selective"))


def _sequence(settings: FileSettings) -> bool:
    off = settings.flag("parallelism.no_enable_sequence_parallel")
    return settings.flag("parallelism.enable_sequence_parallel", True) and not off


def _micro(settings: FileSettings, pp: int) -> int:
    if settings.has("training.num_tokens_per_microbatch_per_dp_rank"):
        tokens = settings.whole("training.num_tokens_per_microbatch_per_dp_rank")
        return max(tokens // settings.whole("training.max_context_length", 2048), 1)
    local = settings.whole("training.local_batch_size", settings.whole("training.batch_size", 8))
    return settings.whole("parallelism.pipeline_parallel_microbatch_size", 1) if pp > 1 else local


def _at_once(settings: FileSettings, policy: Policy) -> int:
    """Sequences that one replica sends through its pipeline before it drains."""
    if settings.has("training.num_tokens_per_microbatch_per_dp_rank"):
        return policy.micro_batch * settings.whole("parallelism.num_pp_microbatches", policy.pp)
    return settings.whole("training.local_batch_size", settings.whole("training.batch_size", 8))


def _precision(settings: FileSettings) -> str:
    low = settings.text("quantize.linear.float8.recipe_name")
    if low or "float8" in settings.text("model.converters"):
        return "fsdp-fp8-rowwise" if low.startswith("rowwise") else "fsdp-fp8-reduce32"
    if settings.text("quantize.linear.mx.recipe_name") or "linear.mx" in settings.text("model.converters"):
        return "fsdp-mxfp8-reduce32"
    return "fp32" if settings.text("training.mixed_precision_param") == "float32" else "fsdp-mixed-reduce32"


FORMAT = Format(
    name="torchtitan", smoke="--training.steps 3",
    title="torchtitan",
    stack=STACK,
    source="pytorch/torchtitan v0.2.2: torchtitan/config/job_config.py; b5bcd76c6: torchtitan/config/configs.py",
    only={
        "schedule": tuple(SCHEDULES), "order": ("tp-cp-dp-pp",), "attention": ("flash",), "offload": ("none",),
        "recompute_modules": ((),), "sync": ("",),
    },
    local_batches=True,
    own=_own, gaps=_gaps, write=_write, claims=_claims, read=_read,
    versions=VERSIONS, starts=r"torchtitan\.train|(?:.*/)?torchtitan/train\.py",
)  # fmt: skip
