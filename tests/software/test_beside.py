"""What a `software` text says beside a program's name: whose kernels, which ZeRO, with a compiler or without."""

import pytest

from shardwise.spec.software import Stack, stack_for, stack_of

DEEPSPEED = stack_of("deepspeed").network


def _sends_tensors(stack: Stack) -> bool:
    return stack.network.gathers_tensors_above == DEEPSPEED.gathers_tensors_above > 0


@pytest.mark.parametrize("software", [
    "DeepSpeed 0.11.1 (Hugging Face)", "Hugging Face Trainer, DeepSpeed", "Axolotl with DeepSpeed ZeRO-3",
    "Accelerate + FlashAttention-2 + DeepSpeed", "DeepSpeed 0.14.2", "XTuner 0.2 over DeepSpeed",
])  # fmt: skip
def test_zero_of_deepspeed_in_whatever_order_it_is_named(software: str) -> None:
    """Every tensor is gathered by itself, and gradients are added up in the model's 16 bits."""
    stack = stack_for(software)
    assert _sends_tensors(stack)
    assert stack.abilities.precision_bf16 == "bf16-grad16"
    assert 1 in stack.abilities.zero


@pytest.mark.parametrize("software", ["Hugging Face Trainer (FSDP)", "PyTorch FSDP", "torchtitan"])
def test_fsdp_gathers_a_layer_at_a_time(software: str) -> None:
    assert not _sends_tensors(stack_for(software))


@pytest.mark.parametrize("software", ["Megatron-DeepSpeed", "Megatron-LM 2021+DeepSpeed"])
def test_programs_with_kernels_of_megatron_keep_them(software: str) -> None:
    assert not stack_for(software).kernels.separate_projections


@pytest.mark.parametrize(("software", "fused"), [
    ("PyTorch FSDP", False), ("DDP", False), ("torchtune (eager)", False), ("Hugging Face Trainer", False),
    ("a program of ours", False), ("PyTorch FSDP, torch.compile", True), ("torchtune (torch.compile)", True),
    ("Hugging Face, Liger", True), ("our recipe on Transformer Engine (FSDP2)", True), 
    ("TinyLlama", True), ("torchtitan", True), ("torchtitan (eager)", False), ("torchtitan, not compiled", False),
    ("OLMo-core without torch.compile", False),
])  # fmt: skip
def test_norm_rotation_and_activation_are_fused_by_somebody(software: str, fused: bool) -> None:
    kernels = stack_for(software).kernels
    assert (kernels.fused_norm, kernels.fuses_rotation) == (fused, fused)
    assert kernels.one_kernel_per_op != fused or "compile" not in software


def test_a_program_that_compiles_launches_more_without() -> None:
    compiled, eager = stack_for("torchtitan"), stack_for("torchtitan (eager)")
    assert eager.host.ops_per_layer > compiled.host.ops_per_layer
    assert eager.kernels.kernel_efficiency == compiled.kernels.kernel_efficiency


def test_attention_of_transformer_engine_is_the_vendors() -> None:
    assert stack_for("mine (FSDP)").kernels.attention_kernel == "sdpa"
    assert stack_for("mine (FSDP, Transformer Engine)").kernels.attention_kernel == "flash"


def test_ddp_runs_under_autocast() -> None:
    """It has no precision of its own: weights and the residual stream stay in fp32."""
    assert stack_for("nanoGPT (DDP)").abilities.precision_bf16 == "autocast"
    assert stack_for("nanoGPT (FSDP)").abilities.precision_bf16 == "fsdp-mixed"
