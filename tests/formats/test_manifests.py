"""Scripts within jobs of SkyPilot and Kubernetes are followed as the cluster would start them."""

import pytest

from shardwise.programs.formats import read_launch

SKYPILOT = """
name: tune
resources:
  accelerators: {accelerators}
num_nodes: 2
envs:
  MICRO: 4
file_mounts:
  /configs/zero.json: ./zero.json
setup: pip install transformers
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE train.py \\
    --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size $MICRO --model_max_length 2048 \\
    --bf16 True --deepspeed /configs/zero.json
"""
KUBERNETES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data:
  train.sh: |
    torchrun --nnodes=4 --nproc_per_node=$GPUS pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
      --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 \\
      --tensor-model-parallel-size 2 --bf16
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{command: [bash, /mnt/train.sh],
      env: [{name: GPUS, value: "8"}], resources: {limits: {nvidia.com/gpu: "8"}}}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{command: [bash, /mnt/train.sh],
      env: [{name: GPUS, value: "8"}], resources: {limits: {nvidia.com/gpu: "8"}}}]}}}
"""


@pytest.mark.parametrize("accelerators", ["A100:8", "{A100-80GB: 8}", "{H100:8, H200:8}"])
def test_a_skypilot_task(accelerators, tmp_path):
    (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}')
    (tmp_path / "task.yaml").write_text(SKYPILOT.replace("{accelerators}", accelerators))
    target, found = read_launch([tmp_path / "task.yaml"])
    assert (target.name, found.gpus, found.policy.zero, found.policy.micro_batch) == ("transformers", 16, 3, 4)
    assert (found.seq, found.precision) == (2048, "bf16")


def test_a_kubernetes_job_with_its_script_in_another_document(tmp_path):
    (tmp_path / "job.yaml").write_text(KUBERNETES)
    target, found = read_launch([tmp_path / "job.yaml"])
    assert (target.name, found.gpus, found.policy.tp, found.policy.dp) == ("megatron", 32, 2, 16)
    assert (found.global_batch, found.seq) == (64, 4096)


def test_a_variable_that_the_one_who_submits_fills_in_is_not_guessed(tmp_path):
    text = KUBERNETES.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP")
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"tensor_model_parallel_size.*\$TP.*--set"):
        read_launch([tmp_path / "job.yaml"])


def test_several_documents_without_a_script_are_refused(tmp_path):
    (tmp_path / "two.yaml").write_text("micro_batch_size: 1\n---\nmicro_batch_size: 2\n")
    with pytest.raises(ValueError, match="2 YAML documents"):
        read_launch([tmp_path / "two.yaml"])
