"""Launch files of reinforcement learning, short."""

from pathlib import Path

from shardwise.programs.formats import read_launch

NEMO = """
defaults: ../base.yaml
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 32}
policy:
  model_name: Qwen/Qwen3-32B
  train_global_batch_size: 512
  max_total_sequence_length: 4096
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 4, pipeline_model_parallel_size: 4, sequence_parallel: true}
  generation:
    vllm_cfg: {tensor_parallel_size: 4, gpu_memory_utilization: 0.7}
cluster: {gpus_per_node: 8, num_nodes: 4}
"""
BASE = """
grpo: {num_prompts_per_step: 8, async_grpo: {enabled: false}}
policy: {train_micro_batch_size: 1, generation: {max_new_tokens: "${policy.max_total_sequence_length}"}}
loss_fn: {reference_policy_kl_penalty: 0}
"""
APART = """
  generation:
    colocated: {enabled: false, resources: {num_nodes: 2, gpus_per_node: 8}}
    vllm_cfg: {tensor_parallel_size: 4, gpu_memory_utilization: 0.7}
"""
VERL = """
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=512 \\
  data.max_prompt_length=1024 data.max_response_length=2048 actor_rollout_ref.model.path=Qwen/Qwen3-8B \\
  actor_rollout_ref.actor.ppo_mini_batch_size=128 actor_rollout_ref.actor.use_kl_loss=True \\
  actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
  trainer.nnodes=2 trainer.n_gpus_per_node=8 {more}
"""
OPENRLHF = """
python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 8 --vllm.num_engines 4 \\
  --vllm.tensor_parallel_size 4 --actor.model_name_or_path Qwen/Qwen2.5-7B --train.batch_size 128 \\
  --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 --data.max_len 4096 --ds.zero_stage 3 \\
  --algo.advantage.estimator rloo --algo.kl.init_coef 0 --actor.gradient_checkpointing_enable {more}
"""
PRIME = """
seq_len = 8192
[model]
name = "Qwen/Qwen3-8B"
[deployment]
num_train_gpus = 2
num_infer_gpus = 6
[trainer.model]
[orchestrator]
batch_size = 256
group_size = 16
max_off_policy_steps = 4
[orchestrator.train.sampling]
max_completion_tokens = 2048
[[orchestrator.train.source]]
[orchestrator.train.source.env.taskset]
id = "TASKS"
[inference.vllm]
tensor_parallel_size = 2
"""
TRL = """
accelerate launch --num_processes 8 -m trl.scripts.grpo --model_name_or_path Qwen/Qwen2.5-7B --num_generations 8 \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_completion_length 1024 --use_vllm true \\
  --vllm_mode colocate --vllm_tensor_parallel_size 2 --beta 0.04 {more}
"""


def read(folder: Path, name: str, text: str):
    path = folder / "recipes" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    (folder / "base.yaml").write_text(BASE)
    (folder / "pyproject.toml").touch()
    return read_launch([path])[1]
