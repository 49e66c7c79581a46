"""A layout of post-training as the file that starts it: what `_rollout.py` reads, written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shardwise.programs.formats._rollout import COLOCATED, StatedRollout
from shardwise.registry import closest
from shardwise.spec.policy import DEGREES, Policy


@dataclass(frozen=True, kw_only=True)
class RolloutLaunch:
    stated: StatedRollout
    policy: Policy
    """of the trainer"""
    model: str
    """as its program calls it; empty: the user fills it in"""
    node_gpus: int

    @property
    def called(self) -> str:
        return self.model or "${MODEL_PATH:?}"

    def nodes(self, gpus: int) -> tuple[int, int]:
        """(nodes, GPUs of each); what fills no whole nodes is a ValueError."""
        each = min(gpus, self.node_gpus)
        if gpus % each:
            raise ValueError(f"layout: {gpus} GPUs are no whole nodes of {each}; write --rollout-gpus of whole nodes")
        return gpus // each, each


def _only(launch: RolloutLaunch, program: str, axes: tuple[str, ...]) -> None:
    """Refuses axes of the trainer that the program has no option for."""
    for axis in DEGREES[1:]:
        if axis not in axes and getattr(launch.policy, axis) > 1:
            raise ValueError(f"{axis}: {getattr(launch.policy, axis)} is not stated in {program}; write --fix {axis}=1")


def _verl(launch: RolloutLaunch) -> dict[str, str]:
    stated, policy, at = launch.stated, launch.policy, "actor_rollout_ref."
    if stated.lag > 1:
        raise ValueError(f"lag: {stated.lag} is written for no mode of verl; write --lag 1 (one step off), or 0")
    if stated.prompts % stated.updates:
        raise ValueError(f"updates: {stated.updates} do not divide {stated.prompts} prompts; write a divisor")
    trains = stated.gpus or policy.gpus
    nodes, each = launch.nodes(trains - (stated.rollout_gpus or 0))
    words: dict[str, Any] = {
        "algorithm.adv_estimator": {"ppo": "gae"}.get(stated.algorithm, stated.algorithm),
        "data.train_batch_size": stated.prompts, "data.max_prompt_length": stated.prompt_tokens,
        "data.max_response_length": stated.cap, "data.train_files": "${TRAIN_FILES:?}",
        f"{at}model.path": launch.called,
        f"{at}actor.ppo_mini_batch_size": stated.prompts // stated.updates, f"{at}actor.use_dynamic_bsz": True,
        f"{at}actor.use_kl_loss": stated.reference, f"{at}rollout.name": "vllm", f"{at}rollout.n": stated.group,
        f"{at}rollout.tensor_model_parallel_size": stated.engine_tp,
        f"{at}rollout.gpu_memory_utilization": stated.engine_share or 0.5,
        f"{at}model.enable_gradient_checkpointing": policy.recompute == "full",
        "trainer.nnodes": nodes, "trainer.n_gpus_per_node": each,
    }  # fmt: skip
    if policy.zero == 3:
        _only(launch, "verl's FSDP", ("cp",))
        words |= {f"{at}actor.strategy": "fsdp2", f"{at}actor.ulysses_sequence_parallel_size": policy.cp}
    else:
        engine = f"{at}actor.megatron."
        words |= {f"{at}actor.strategy": "megatron", f"{engine}tensor_model_parallel_size": policy.tp,
                  f"{engine}pipeline_model_parallel_size": policy.pp, f"{engine}context_parallel_size": policy.cp,
                  f"{engine}expert_model_parallel_size": policy.ep,
                  f"{engine}sequence_parallel": policy.sp}  # fmt: skip
        if policy.recompute != "none":
            kept = f"{engine}override_transformer_config.recompute_"
            words |= {f"{kept}granularity": policy.recompute, f"{kept}method": "uniform", f"{kept}num_layers": 1}
    module = "verl.trainer.main_ppo"
    if stated.rollout_gpus:
        module = "verl.experimental.one_step_off_policy.main_ppo"
        rolls, of_each = launch.nodes(stated.rollout_gpus)
        words |= {"rollout.nnodes": rolls, "rollout.n_gpus_per_node": of_each}
    return _script(module, [f"{name}={value}" for name, value in words.items()])


def _script(module: str, words: list[str]) -> dict[str, str]:
    head = ["#!/usr/bin/env bash", "set -euo pipefail", f"python3 -m {module} \\"]
    return {"train.sh": "\n".join([*head, *(f"    {word} \\" for word in words), '    "$@"', ""])}


def _nemo_rl(launch: RolloutLaunch) -> dict[str, str]:
    stated, policy = launch.stated, launch.policy
    if stated.algorithm not in ("grpo", "distill"):
        raise ValueError(f"algorithm: {stated.algorithm} is not written for NeMo-RL; write grpo or distill")
    nodes, each = launch.nodes(stated.gpus or policy.gpus)
    engine: dict[str, Any] = {
        "backend": "vllm", "max_new_tokens": stated.cap,
        "vllm_cfg": {"tensor_parallel_size": stated.engine_tp, "gpu_memory_utilization": stated.engine_share or 0.6,
                     "precision": stated.rollout_precision},
    }  # fmt: skip
    if stated.rollout_gpus:
        rolls, of_each = launch.nodes(stated.rollout_gpus)
        engine["colocated"] = {"enabled": False, "resources": {"num_nodes": rolls, "gpus_per_node": of_each}}
    late = {"enabled": stated.lag > 0, "max_trajectory_age_steps": max(stated.lag, 1)}
    sharded = policy.zero == 3
    if sharded:
        _only(launch, "NeMo-RL's DTensor", ("tp", "cp"))
    trainer: dict[str, Any] = {
        "megatron_cfg": {"enabled": False},
        "dtensor_cfg": {"enabled": True, "tensor_parallel_size": policy.tp, "context_parallel_size": policy.cp,
                        "sequence_parallel": policy.sp, "activation_checkpointing": policy.recompute == "full"},
    } if sharded else {
        "dtensor_cfg": {"enabled": False},
        "megatron_cfg": {"enabled": True, "tensor_model_parallel_size": policy.tp,
                         "pipeline_model_parallel_size": policy.pp, "context_parallel_size": policy.cp,
                         "expert_model_parallel_size": policy.ep, "sequence_parallel": policy.sp,
                         "activation_checkpointing": policy.recompute != "none"},
    }  # fmt: skip
    kind = "distillation" if stated.algorithm == "distill" else "grpo"
    document = {
        "defaults": "grpo_math_1B.yaml",
        kind: {"num_prompts_per_step": stated.prompts, "num_generations_per_prompt": stated.group,
               **({"async_grpo": late} if kind == "grpo" else {})},
        "loss_fn": {"reference_policy_kl_penalty": 0.01 if stated.reference else 0},
        "policy": {"model_name": launch.called,
                   "train_global_batch_size": stated.prompts * stated.group // stated.updates,
                   "train_micro_batch_size": policy.micro_batch,
                   "max_total_sequence_length": stated.prompt_tokens + stated.cap, **trainer, "generation": engine},
        "cluster": {"gpus_per_node": each, "num_nodes": nodes},
    }  # fmt: skip
    return {"grpo.yaml": "\n".join(_yaml(document)) + "\n"}


def _yaml(values: Mapping[str, Any], deep: int = 0) -> list[str]:
    lines = list[str]()
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{'  ' * deep}{name}:", *_yaml(value, deep + 1)]
        else:
            word = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value
            lines.append(f"{'  ' * deep}{name}: {word}")
    return lines


def _openrlhf(launch: RolloutLaunch) -> dict[str, str]:
    stated, policy = launch.stated, launch.policy
    _only(launch, "OpenRLHF", ("tp", "cp"))
    names = {"grpo": "group_norm", "rloo": "rloo", "ppo": "gae"}
    if stated.algorithm not in names:
        raise ValueError(f"algorithm: {stated.algorithm} is not written for OpenRLHF; write {', '.join(names)}")
    nodes, each = launch.nodes(policy.gpus)
    engines = (stated.rollout_gpus or policy.gpus) // stated.engine_tp
    words: dict[str, Any] = {
        "actor.num_nodes": nodes, "actor.num_gpus_per_node": each, "ref.num_nodes": nodes,
        "ref.num_gpus_per_node": each,
        "vllm.num_engines": engines, "vllm.tensor_parallel_size": stated.engine_tp,
        "vllm.gpu_memory_utilization": stated.engine_share or 0.9, "actor.model_name_or_path": launch.called,
        "rollout.batch_size": stated.prompts, "rollout.n_samples_per_prompt": stated.group,
        "train.batch_size": stated.prompts * stated.group // stated.updates,
        "train.micro_batch_size": policy.micro_batch, "data.max_len": stated.prompt_tokens + stated.cap,
        "rollout.max_new_tokens": stated.cap,
        "data.prompt_dataset": "${DATASET:?}", "ds.zero_stage": policy.zero, "ds.tensor_parallel_size": policy.tp,
        "ds.ring_attn_size": policy.cp, "algo.advantage.estimator": names[stated.algorithm],
        "algo.kl.init_coef": 0.01 if stated.reference else 0,
    }  # fmt: skip
    flags = ["ds.packing_samples"]
    flags += ["actor.gradient_checkpointing_enable"] if policy.recompute == "full" else []
    flags += ["train.colocate_all", "vllm.enable_sleep", "ds.enable_sleep"] if stated.layout == COLOCATED else []
    if stated.lag:
        flags, words = [*flags, "train.async_enable"], {**words, "train.async_queue_size": stated.lag}
    options = [f"--{name} {value}" for name, value in words.items()]
    return _script("openrlhf.cli.train_ppo_ray", [*options, *(f"--{name}" for name in flags)])


def _prime_rl(launch: RolloutLaunch) -> dict[str, str]:
    stated, policy = launch.stated, launch.policy
    _only(launch, "prime-rl", ("cp", "ep"))
    if not stated.rollout_gpus:
        raise ValueError("layout: prime-rl runs engine and trainer apart; write --layout split")
    if stated.updates > 1 or stated.algorithm != "grpo":
        raise ValueError(f"updates: {stated.updates} of {stated.algorithm} are not stated in prime-rl; write 1 of grpo")
    text = f"""seq_len = {stated.prompt_tokens + stated.cap}

[model]
name = "{launch.called}"

[deployment]
num_train_gpus = {policy.gpus}
num_infer_gpus = {stated.rollout_gpus}

[trainer.model]
cp = {policy.cp}
ep = {policy.ep}

[orchestrator]
batch_size = {stated.prompts * stated.group}
group_size = {stated.group}
max_off_policy_steps = {max(stated.lag, 1)}

[orchestrator.train.sampling]
max_completion_tokens = {stated.cap}

[inference.vllm]
tensor_parallel_size = {stated.engine_tp}
data_parallel_size = {stated.rollout_gpus // stated.engine_tp}
gpu_memory_utilization = {stated.engine_share or 0.9}
"""
    return {"rl.toml": text}


WRITERS: dict[str, Callable[[RolloutLaunch], dict[str, str]]] = {
    "verl": _verl, "nemo_rl": _nemo_rl, "openrlhf": _openrlhf, "prime_rl": _prime_rl,
}  # fmt: skip


def written_rollout(target: str, launch: RolloutLaunch) -> dict[str, str]:
    if target not in WRITERS:
        raise ValueError(f"to: {target!r} starts no post-training here; {closest(target, list(WRITERS))}")
    return WRITERS[target](launch)
