"""Settings that change a step and that no policy holds: what is read is named, and what a file cannot state is said."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from shardwise.programs.formats._contract import Format, Launch
from shardwise.programs.formats._settings import NOTHING, SWITCHES, shown

ON_HOST = "what is kept in the host's memory"
KERNELS = "how kernels run"
MATTERS = {
    "fp8_recipe": "how scales of fp8 are kept; priced as one for each tensor, computed again in each pass",
    "fp4_recipe": "how scales of fp4 are kept",
    "first_last_layers_bf16": "which layers stay in bf16",
    "fp8_param_gather": "bytes of gathered parameters",
    "fp8_param": "bytes of gathered parameters",
    "exp_avg_dtype": "bytes of the optimizer's state",
    "exp_avg_sq_dtype": "bytes of the optimizer's state",
    "main_params_dtype": "bytes of the optimizer's state",
    "main_grads_dtype": "bytes of gradients",
    "bf16_master_weights_and_grads": "bytes of the optimizer's state and of gradients",
    "bf16_optimizer_states": "bytes of the optimizer's state",
    "moe_expert_capacity_factor": "how many tokens an expert takes",
    "capacity_factor": "how many tokens an expert takes",
    "moe_pad_expert_input_to_capacity": "how many tokens an expert computes",
    "overlap_moe_expert_parallel_comm": "whether tokens travel to experts under compute",
    "delay_wgrad_compute": "when gradients of weights are computed",
    "moe_shared_expert_overlap": "whether the shared expert runs while tokens travel",
    "use_ring_of_experts": "how tokens travel to experts",
    "hierarchical_context_parallel_sizes": "how context parallelism lies on two levels",
    "hybrid_context_parallel": "how sequences of different length are cut",
    "fine_grained_activation_offloading": ON_HOST,
    "offload_modules": ON_HOST,
    "activation_offload_fraction": ON_HOST,
    "cpu_offloading": ON_HOST,
    "cpu_offloading_num_layers": ON_HOST,
    "cpu_checkpointing": ON_HOST,
    "enable_cpu_offload": ON_HOST,
    "fsdp_offload_params": ON_HOST,
    "param_offload": ON_HOST,
    "grad_offload": ON_HOST,
    "optimizer_offload": ON_HOST,
    "optimizer_memory_host_offload": ON_HOST,
    "zero_hpz_partition_size": "a second copy of parameters in each node",
    "mics_shard_size": "over how many ranks ZeRO shares",
    "zero_quantized_weights": "bytes of gathered parameters",
    "zero_quantized_gradients": "bytes of reduced gradients",
    "num_vocab_tiling": "how many chunks the loss is computed in",
    "pp_partition_method": "which layers lie on which stage",
    "pp_algorithm": "the order of the pipeline",
    "patch_zero_bubble": "the order of the pipeline",
    "enable_zero_bubble": "the order of the pipeline",
    "zero_bubble_v_schedule": "the order of the pipeline",
    "rampup_batch_size": "the batch, which grows",
    "step_batch_size_schedule": "the batch, which grows",
    "cuda_graph_impl": "the host's time for launches",
    "enable_cuda_graph": "the host's time for launches",
    "external_cuda_graph": "the host's time for launches",
    "enable_primus_turbo": KERNELS,
    "semi_sync_method": "how often replicas exchange",
    "enable_diloco": "how often replicas exchange",
    "gradient_compression": "bytes of reduced gradients",
    "use_kt": "which experts the host computes",
    "lisa_n_layers": "which layers are trained",
    "compression_training": "which weights are kept, and in how many bits",
}
"""last part of a name -> what it changes"""
DECIDES = re.compile(
    r"(?:.*_)?(?:tensor|pipeline|pipe|context|expert|sequence|model|data|ulysses)_(?:model_)?parallel(?:ism)?(?:_size|_degree)?"
    r"|(?:tp|pp|cp|ep|mp|dp|sp)(?:_size|_degree)|p|(?:num_)?stages|gradient_accumulation_steps|accumulate_grad_batches"
    r"|(?:mixed_)?precision|zero_stage|fsdp|micro_batch_size(?:_per_gpu)?|global_batch_size"
)
"""last part of a name that says how work is split, whatever the program"""
BESIDE = re.compile(r"(?:rollout|ref|critic|vllm|generation|eval|validation|inference|data|dataset|teacher|sglang)\b")
"""parts of a job whose split is not that of the training"""
AS_PRICED = {
    "fp8_recipe": ("tensorwise", "current", "blockwise", "mxfp8"), "fp4_recipe": ("nvfp4",),
    "zero_hpz_partition_size": ("1",),
}  # fmt: skip
"""values that are what is modelled"""
OFF = (*NOTHING, *(word for word, on in SWITCHES.items() if not on), "none", "local", "-1", "fp32")

WITHOUT_INFLUENCE = re.compile(
    r"(?:train|eval|exit)_(?:iters|samples|interval|steps)|(?:max_|num_)?(?:train_)?(?:steps|epochs)|num_train_epochs"
    r"|(?:min_|max_|init_|base_)?(?:lr|learning_rate)(?:_.*)?|.*warmup.*|.*decay.*|adam_.*|beta_?[12]|betas|eps(?:ilon)?"
    r"|clip_grad|max_grad_norm|gradient_clipping|(?:.*_)?seed|mock_data|data_path|split|dataset.*|tokenizer.*|vocab_file"
    r"|merge_file|(?:timing_)?log(?:ging)?_.*|wandb.*|tensorboard.*|(?:save|load)(?:_(?:interval|steps|dir|path|folder|freq|strategy|"
    r"total_limit|retain_interval))?|ckpt_format|.*checkpoint_dir"
    r"|compute_environment|main_process_(?:ip|port)|rdzv_backend|same_network|main_training_function|fsdp_state_dict_type"
    r"|model_name_or_path|model_revision|output_dir|run_name|project|job_name|wall_clock_breakdown|steps_per_print|report_to|comet.*"
)
"""last part of a name that is known not to change a step: its length, learning rate, data, logs and files"""


def without_influence(setting: str, program: str) -> bool:
    """Of a setting as text: its name, then its value."""
    last = setting.split(" ")[0].rpartition(".")[2].lower().replace("-", "_")
    return WITHOUT_INFLUENCE.fullmatch(last) is not None or idle_names(program).fullmatch(last) is not None


@cache
def idle_names(program: str) -> re.Pattern[str]:
    """Names that change no step of a program, by its own source: idle.toml."""
    lists = tomllib.loads(resources.files("shardwise.programs.formats").joinpath("idle.toml").read_text("utf-8"))

    def listed(name: str) -> list[str]:
        return [each for word in lists.get(name, ()) for each in (listed(word[1:]) if word[0] == "@" else [word])]

    return re.compile("|".join(listed(program)) or "(?!)")


def not_modelled(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings that change the step and that the prediction does not follow."""
    found = []
    for name, value in values.items():
        last = name.rpartition(".")[2]
        what, text = MATTERS.get(last, ""), str(value).lower()
        if what and text not in OFF and text not in AS_PRICED.get(last, ()):
            found.append(f"{name} {shown(name, value)}".strip() + f": {what}")
    return tuple(found)


def undecided(left: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings that nobody read and that say how work is split: the answer may be of another policy."""
    found = []
    for name, value in left.items():
        parts = name.lower().replace("-", "_").split(".")
        text = str(value).lower()
        if DECIDES.fullmatch(parts[-1]) and text not in (*OFF, "1", "1.0", "auto") and not any(
            BESIDE.search(part) for part in parts[:-1]
        ):  # fmt: skip
            found.append(f"{name} {shown(name, value)}".strip() + ": says how work is split, and is not understood")
    return tuple(found)


def not_stated(target: Format, launch: Launch) -> list[str]:
    """What the prediction assumes of the program and its file does not say."""
    policy, stack = launch.policy, launch.case.stack
    assumed = {}
    if policy.cp > 1:
        assumed["context_parallel"] = f"context parallelism by {stack.abilities.context_parallel}"
    if policy.ep > 1:
        ways = {"copies": "an all-to-all", "once": "DeepEP", "gather": "an all-gather"}
        assumed["dispatcher"] = f"tokens that travel to experts by {ways.get(stack.experts.dispatch, 'its own way')}"
    if policy.loss == "chunked":
        assumed["loss_chunks"] = "the chunks of the loss"
    return [
        f"{what}: assumed by the prediction, not stated in a file of {target.title}"
        for name, what in assumed.items()
        if name not in target.states
    ]
