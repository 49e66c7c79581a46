"""What launch files of reinforcement learning say besides the update: who rolls out, how many answers, how long."""

from dataclasses import dataclass
from math import ceil

from shardwise.programs.formats._settings import FileSettings

COLOCATED, SPLIT = "colocated", "split"
TOOLS = "answers over several turns, with tools or an environment between them: their time is not priced"
PICTURES = "prompts with pictures, sound or video: their encoder is not priced"
JUDGED = "answers scored by a model: its passes are not priced"
SEEING = ("-vl-", "-vl", "vision", "omni", "4v", "4_1v", "pixtral", "llava", "internvl", "audio", "multimodal")


@dataclass(frozen=True, kw_only=True)
class StatedRollout:
    program: str
    """as `posttrain --stack` names it"""
    algorithm: str
    prompts: int
    group: int
    prompt_tokens: int
    """the longest prompt"""
    cap: int
    """the longest answer"""
    layout: str = COLOCATED
    rollout_gpus: int | None = None
    gpus: int | None = None
    """of both sides"""
    engine_tp: int = 1
    engine_share: float | None = None
    """of memory"""
    lag: int = 0
    updates: int = 1
    reference: bool = False
    rollout_precision: str = "bf16"
    refused: tuple[str, ...] = ()
    """what a step of it has and no prediction knows"""


def _is_seen(name: str) -> bool:
    return any(mark in f"{name.lower()}-" for mark in SEEING)


ESTIMATORS = {"gae": "ppo", "grpo": "grpo", "group_norm": "grpo", "dr_grpo": "grpo", "rloo": "rloo"}


def _algorithm(word: str, refused: list[str]) -> str:
    if word not in ESTIMATORS:
        refused.append(f"advantages by {word}, which no pass is known of")
    return ESTIMATORS.get(word, "grpo")


VERL = "actor_rollout_ref."


def of_verl(settings: FileSettings) -> StatedRollout | None:
    engine, actor = f"{VERL}rollout.", f"{VERL}actor."
    refused = list[str]()
    algorithm = _algorithm(settings.text("algorithm.adv_estimator", "gae"), refused)
    prompts = settings.whole("data.train_batch_size", 1024, least=0)
    apart = next((word for word in ("fully_async", "one_step_off") if word in settings.program.lower()), "")
    trainers = settings.whole("trainer.nnodes", 1) * settings.whole("trainer.n_gpus_per_node", 8)
    rollers = settings.whole("rollout.nnodes", 1) * settings.whole("rollout.n_gpus_per_node", 8) if apart else None
    mini = settings.whole(f"{actor}ppo_mini_batch_size", 256)
    if apart == "fully_async":
        # the trainer takes so many mini-batches between two transfers of weights (docs/advance/fully_async.md)
        prompts = mini * settings.whole("async_training.require_batches", 1)
        prompts *= settings.whole("async_training.trigger_parameter_sync_step", 4)
    late = settings.number("async_training.staleness_threshold", 0.1) if apart == "fully_async" else 0.0
    loop = settings.text(f"{engine}agent.default_agent_loop", "single_turn_agent")
    turns = settings.flag(f"{engine}multi_turn.enable") or settings.has(f"{engine}multi_turn.tool_config_path")
    if turns or loop != "single_turn_agent":
        refused.append(TOOLS)
    if _is_seen(settings.text(f"{VERL}model.path")) or settings.first("data.image_key", "data.video_key"):
        refused.append(PICTURES)
    if settings.flag("reward_model.enable") or settings.flag("reward.reward_model.enable"):
        refused.append(JUDGED)
    if settings.text(f"{engine}name", "vllm") not in ("vllm", "sglang"):
        refused.append(f"the engine {settings.text(f'{engine}name')}")
    parts = settings.whole(f"{engine}pipeline_model_parallel_size")
    if parts > 1:
        refused.append(f"an engine of {parts} pipeline stages")
    return StatedRollout(
        program="verl", algorithm=algorithm, prompts=max(prompts, 1), group=settings.whole(f"{engine}n"),
        prompt_tokens=settings.whole("data.max_prompt_length", 512),
        cap=settings.whole("data.max_response_length", 512),
        layout=SPLIT if apart else COLOCATED, rollout_gpus=rollers, gpus=trainers + (rollers or 0),
        engine_tp=settings.whole(f"{engine}tensor_model_parallel_size", 2),
        engine_share=settings.number(f"{engine}gpu_memory_utilization", 0.5),
        lag=1 + ceil(late) if apart == "fully_async" else int(bool(apart)),
        updates=max(prompts // mini, 1) * settings.whole(f"{actor}ppo_epochs"),
        reference=settings.flag(f"{actor}use_kl_loss") or settings.flag("algorithm.use_kl_in_reward"),
        rollout_precision="fp8" if "fp8" in settings.text(f"{engine}quantization") else "bf16", refused=tuple(refused),
    )  # fmt: skip


def of_openrlhf(settings: FileSettings) -> StatedRollout:
    def first(*names: str) -> str:
        return settings.first(*names) or names[0]

    def whole(default: int, *names: str) -> int:
        return settings.whole(first(*names), default, least=0)

    refused = list[str]()
    word = settings.text(first("algo.advantage.estimator", "advantage_estimator"), "gae")
    algorithm = _algorithm(word, refused)
    if settings.text(first("train.agent_func_path", "agent_func_path")):
        refused.append(TOOLS)
    if settings.has(first("reward.model_name_or_path", "reward_pretrain")):
        refused.append(JUDGED)
    called = settings.text(first("actor.model_name_or_path", "pretrain"))
    if _is_seen(called) or settings.has(first("data.image_key", "image_key")):
        refused.append(PICTURES)
    actor = whole(1, "actor.num_nodes", "actor_num_nodes") * whole(
        8, "actor.num_gpus_per_node", "actor_num_gpus_per_node"
    )
    engines, tp = whole(0, "vllm.num_engines", "vllm_num_engines"), whole(
        1, "vllm.tensor_parallel_size", "vllm_tensor_parallel_size"
    )  # fmt: skip
    if not engines:
        refused.append("answers by the trainer itself, without an engine")
    together = settings.flag(first("train.colocate_all", "colocate_all_models"))
    late = settings.flag(first("train.async_enable", "async_train"))
    prompts, group = whole(1024, "rollout.batch_size", "rollout_batch_size"), whole(
        1, "rollout.n_samples_per_prompt", "n_samples_per_prompt"
    )  # fmt: skip
    longest = whole(0, "prompt_max_len") or min(whole(2048, "data.max_len", "max_len") // 4, 1024)
    cap = whole(0, "generate_max_len", "rollout.max_new_tokens") or whole(2048, "data.max_len", "max_len") - longest
    kl = settings.number(first("algo.kl.init_coef", "init_kl_coef"), 0.01)
    return StatedRollout(
        program="openrlhf", algorithm=algorithm, prompts=prompts, group=group, prompt_tokens=longest, cap=cap,
        layout=COLOCATED if together else SPLIT, rollout_gpus=None if together else engines * tp,
        gpus=actor + (0 if together else engines * tp), engine_tp=tp,
        engine_share=settings.number(first("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"), 0.95),
        lag=whole(1, "train.async_queue_size", "async_queue_size") if late else 0 if together else 1,
        updates=max(prompts * group // whole(128, "train.batch_size", "train_batch_size"), 1), reference=kl > 0,
        refused=tuple(refused),
    )  # fmt: skip


def of_trl(settings: FileSettings, gpus: int | None) -> StatedRollout | None:
    """`gpus`: that train."""
    refused = list[str]()
    kind = next((name for name in ("grpo", "rloo") if name in settings.program), "grpo")
    answers = settings.whole("num_generations", 8)
    each = settings.whole("per_device_train_batch_size", 8) * settings.whole("gradient_accumulation_steps")
    rows = settings.whole_or_none("generation_batch_size") or each * (gpus or 1)
    mode = settings.text("vllm_mode", "colocate")
    if not settings.flag("use_vllm"):
        refused.append("answers by the trainer itself, without an engine (use_vllm is off)")
    if settings.has("tools") or settings.has("environment_factory"):
        refused.append(TOOLS)
    if _is_seen(settings.text("model_name_or_path")):
        refused.append(PICTURES)
    apart = settings.flag("use_vllm") and mode == "server"
    return StatedRollout(
        program="trl", algorithm=kind, prompts=max(rows // answers, 1), group=answers,
        prompt_tokens=settings.whole("max_prompt_length", 512), cap=settings.whole("max_completion_length", 256),
        layout=SPLIT if apart else COLOCATED, gpus=None if apart else gpus,
        engine_tp=settings.whole("vllm_tensor_parallel_size"),
        engine_share=settings.number("vllm_gpu_memory_utilization", 0.3), lag=int(apart),
        updates=settings.whole("num_iterations") * settings.whole("steps_per_generation", 1),
        reference=settings.number("beta", 0.0) > 0, refused=tuple(refused),
    )  # fmt: skip


def of_prime_rl(settings: FileSettings, train_gpus: int | None) -> StatedRollout:
    at, each = "orchestrator.", settings.whole("deployment.gpus_per_node", 8)
    group = settings.whole(settings.first(f"{at}group_size", f"{at}rollouts_per_example") or f"{at}group_size")
    rows = settings.whole(f"{at}batch_size", 128)
    longest = settings.whole(f"{at}seq_len", settings.whole("seq_len", 2048))
    sampled = settings.first(f"{at}train.sampling.max_completion_tokens", f"{at}sampling.max_tokens",
                             f"{at}train.sampling.max_tokens", f"{at}sampling.max_completion_tokens")  # fmt: skip
    prompt = min(512, longest // 4)
    cap = min(settings.whole(sampled), longest) if sampled else longest - prompt
    nodes = settings.whole_or_none("deployment.num_infer_nodes")
    rolls = nodes * each * settings.whole("deployment.num_infer_replicas") if nodes else settings.whole(
        "deployment.num_infer_gpus", 1
    )  # fmt: skip
    word = f"{at}max_off_policy_steps" if settings.has(f"{at}max_off_policy_steps") else f"{at}max_async_level"
    tp = settings.first("inference.vllm.tensor_parallel_size", "inference.parallel.tp")
    share = settings.first("inference.vllm.gpu_memory_utilization", "inference.gpu_memory_utilization")
    refused = [] if _plain(settings, at) else [TOOLS]
    if _is_seen(settings.text("model.name")) or "multimodal" in settings.where:
        refused.append(PICTURES)
    if group > 1 and rows % group:
        raise settings.refuse(f"{at}batch_size", f"a multiple of the {group} rollouts of an example")
    return StatedRollout(
        program="prime-rl", algorithm="grpo", prompts=max(rows // group, 1), group=group, prompt_tokens=prompt, cap=cap,
        layout=SPLIT, rollout_gpus=rolls, gpus=(train_gpus or 1) + rolls, engine_tp=settings.whole(tp) if tp else 1,
        engine_share=settings.number(share, 0.9) if share else 0.9, lag=max(settings.whole(word, 8, least=0), 1),
        refused=tuple(refused),
    )  # fmt: skip


SINGLE = ("math", "reverse-text", "reverse_text", "i3_math", "i3_logic", "gsm8k", "hendrycks")
"""environments that answer once and score by rule; of the others turns and tools are not known"""


def _plain(settings: FileSettings, at: str) -> bool:
    """Whether every environment is one of those, without a tool for the agent."""
    sources = settings.values.get(f"{at}train.source") or settings.values.get(f"{at}env") or ()
    settings.words(f"{at}train.source") if settings.has(f"{at}train.source") else None
    named = [_named(source) for source in sources] if isinstance(sources, list | tuple) else []
    return bool(named) and all(
        any(word in name for word in SINGLE) and harness in ("", "null") for name, harness in named
    )


def _named(source: object) -> tuple[str, str]:
    """Task set and harness of an environment."""
    if not isinstance(source, dict):
        return "", ""
    env = source.get("env", source)
    env = env if isinstance(env, dict) else {}
    tasks, agent = env.get("taskset", {}), env.get("agent", {})
    harness = agent.get("harness", {}) if isinstance(agent, dict) else {}
    name = tasks.get("id", "") if isinstance(tasks, dict) else ""
    return str(name or env.get("id", "")), str(harness.get("id", "") if isinstance(harness, dict) else "")


NEMO = {"grpo": "grpo", "dpo": "dpo", "distillation": "distill", "ppo": "ppo"}


def of_nemo_rl(settings: FileSettings, gpus: int) -> StatedRollout | None:
    """`gpus`: of the whole cluster."""
    kind = next((name for name in NEMO if any(each.startswith(f"{name}.") for each in settings.names())), "")
    if not kind:
        return None
    refused = list[str]()
    engine = "policy.generation."
    words = settings.text(f"{engine}backend", "vllm")
    vllm = f"{engine}{'sglang' if words == 'sglang' else 'vllm'}_cfg."
    if words not in ("vllm", "sglang"):
        refused.append(f"the engine {words}")
    if settings.whole(f"{kind}.max_rollout_turns") > 1 or any(n.startswith("env.nemo_gym") for n in settings.names()):
        refused.append(TOOLS)
    if any(name.startswith(("env.reward_model", "env.llm_judge")) for name in settings.names()):
        refused.append(JUDGED)
    if settings.flag(f"{kind}.use_dynamic_sampling"):
        refused.append("prompts drawn until enough differ in reward (use_dynamic_sampling): how often is not known")
    if _is_seen(settings.text("policy.model_name")) or "vlm" in settings.where:
        refused.append(PICTURES)
    parts = settings.whole(f"{vllm}pipeline_parallel_size")
    if parts > 1:
        refused.append(f"an engine of {parts} pipeline stages")
    prompts, group = settings.whole(f"{kind}.num_prompts_per_step", 32), settings.whole(
        f"{kind}.num_generations_per_prompt", 16 if kind == "grpo" else 1
    )  # fmt: skip
    longest, batch = settings.whole("policy.max_total_sequence_length", 512), settings.whole(
        "policy.train_global_batch_size", 512
    )  # fmt: skip
    if kind == "dpo":
        prompts, group = max(batch, 1), 2
    cap = min(settings.whole(f"{engine}max_new_tokens", longest), longest)
    prompt = min(512, longest // 4)
    together = settings.flag(f"{engine}colocated.enabled", True)
    rolls = None
    if not together and kind != "dpo":
        at = f"{engine}colocated.resources."
        # of one node so many of its GPUs generate, of several so many whole ones
        nodes = settings.whole_or_none(f"{at}num_nodes") or 1
        rolls = settings.whole(f"{at}gpus_per_node", settings.whole("cluster.gpus_per_node", 8)) * nodes
    late = settings.flag(f"{kind}.async_grpo.enabled")
    return StatedRollout(
        program="nemo-rl", algorithm=NEMO[kind], prompts=prompts, group=group, prompt_tokens=prompt,
        cap=max(cap - prompt, 1) if cap == longest else cap, layout=SPLIT if rolls else COLOCATED, rollout_gpus=rolls,
        gpus=gpus, engine_tp=settings.whole(f"{vllm}tensor_parallel_size"),
        engine_share=settings.number(f"{vllm}gpu_memory_utilization", 0.6),
        lag=settings.whole(f"{kind}.async_grpo.max_trajectory_age_steps") if late else int(bool(rolls)),
        updates=max(prompts * group // max(batch, 1), 1) if kind != "dpo" else 1,
        reference=settings.number("loss_fn.reference_policy_kl_penalty", 0.01) > 0,
        rollout_precision="fp8" if settings.text(f"{vllm}precision") == "fp8" else "bf16", refused=tuple(refused),
    )  # fmt: skip
