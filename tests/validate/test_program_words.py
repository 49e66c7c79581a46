"""A `software` text decides the stack, and the stack what a row means where its columns do not say."""

import pytest

from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.arch import model_of
from shardwise.spec.software import running, stack_for, stack_names, stack_of

ROW = {
    "source": "x", "model": "DeepSeek-V3", "layers": "61", "hidden": "7168", "gpu": "GB200", "gpus": "128",
    "gpus_per_node": "4", "seq": "4096", "dtype": "bf16", "tp": "2", "pp": "4", "vpp": "1", "ep": "32", "dp": "16",
    "zero_stage_or_fsdp": "1", "micro_batch": "1", "global_batch": "1024", "recompute": "selective",
    "flash_attention": "1", "software": "NeMo (dgxc v25.05.05)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("software", "stack"),
    [
        ("NeMo/Megatron-Bridge 26.02.01", "megatron-bridge@26.04"),
        ("NeMo/Megatron-Bridge 25.09", "megatron-bridge@25.09"),
        ("NeMo/Megatron-Bridge 26.06", "megatron-bridge"),
        ("Megatron-Bridge 600d069b", "megatron-bridge@recipes"),
        ("Megatron-Bridge b50da4c7 (NeMo container 26.08.00)", "megatron-bridge"),
        ("Megatron-Bridge 0.1.0rc4 (NeMo container 25.09)", "megatron-bridge@recipes"),
        ("Megatron-Bridge (NeMo 26.02.00; CUDA graphs)", "megatron-bridge@26.04"),
        ("Megatron-Bridge (NeMo container 26.06, CUDA graphs)", "megatron-bridge"),
        ("NeMo/Megatron-Bridge 26.08 (partial CUDA graphs)", "megatron-bridge"),
        ("NeMo/Megatron-Bridge 25.09 (CUDA graphs)", "megatron-bridge@25.09"),
        ("NeMo/Megatron-Bridge (CUDA graphs)", "megatron-bridge@26.04"),
        ("Megatron-LM (NeMo container 26.08)", "megatron-core@lm"),
        ("Megatron-Bridge", "megatron-bridge@recipes"),
        ("Megatron-Core dev", "megatron-core@dev"),
        ("Megatron-Core", "megatron-core@flags"),
        ("Megatron-Core 0.8", "megatron-core"),
        ("NeMo/Megatron-Core MLPerf v3.1", "nemo"),
        ("NeMo/Megatron-Core MLPerf v4.0", "megatron-bridge@26.04"),
        ("NeMo/Megatron-Core MLPerf v5.1", "megatron-bridge@26.04"),
        ("NeMo (dgxc v25.05.05)", "nemo@24"),
        ("NeMo (dgxc v25.02.02)", "nemo@24"),
        ("NeMo (framework 24.07)", "nemo"),
        ("MLPerf v3.1", "nemo"),
        ("NeMo AutoModel (PyTorch FSDP2)", "automodel@benchmark"),
        ("torchtitan 2024", "torchtitan@2024"),
        ("torchtitan 2024-25 (torch.compile)", "torchtitan@2024"),
        ("OLMo-core", "torchtitan"),
        ("DeepSpeed 0.6.2", "deepspeed"),
        ("GPT-NeoX", "gpt-neox"),
        ("InternEvo", "megatron-core@internevo"),
        ("PyTorch FSDP (fms-fsdp)", "torch-fsdp@fms"),
        ("MegaScale", "megatron-bridge@26.04"),
        ("MaxText (JAX)", "jax"),
        ("PyTorch FSDP", "torch-fsdp"),
        ("Ours (PyTorch FSDP2, torch.compile)", "torch-fsdp2"),
        ("Primus (Megatron-LM, Primus-Turbo)", "primus"),
        ("Primus (TorchTitan)", "torchtitan"),
        ("litgpt", "litgpt"),
        ("litgpt (PyTorch FSDP, eager)", "litgpt"),
        ("Hugging Face Trainer with FSDP", "hugging-face"),
        ("XTuner 0.1 (DeepSpeed 0.12 ZeRO-3, Hugging Face models)", "deepspeed"),
        ("Megatron-LM 2021+DeepSpeed", "deepspeed@2021"),
        ("Megatron+DeepSpeed", "deepspeed@megatron"),
        ("flash-attn training scripts (PyTorch Lightning DDP)", "torch-fsdp@fused"),
        ("Colossal-AI 0.3 (Gemini)", "hugging-face"),
        ("TRL SFTTrainer (FSDP)", "hugging-face"),
        ("TRL 1.13 (FSDP2, context parallel)", "hugging-face@trl"),
        ("torchtune (FSDP2)", "torchtune"),
        ("Megatron-LLaMA", "megatron-core@flags"),
        ("Axolotl", "hugging-face"),
        ("Axolotl (DeepSpeed ZeRO-3)", "deepspeed"),
        ("DeepSpeed ZeRO-3", "deepspeed"),
        ("NeMo 24.07 (GCP a3mega)", "nemo@24"),
        ("MosaicML Composer/llm-foundry (PyTorch FSDP)", "llm-foundry"),
        ("Megatron-DeepSpeed", "deepspeed@megatron"),
        ("Megatron-DeepSpeed (BigScience, Feb 2022)", "deepspeed@bigscience"),
        ("Megatron-LM", "megatron-core@lm"),
        ("Megatron-LM 2021", "megatron-core@2021"),
        ("Megatron-LM 0.14", "megatron-core@serial"),
    ],
)
def test_software_names_a_stack(software: str, stack: str) -> None:
    assert stack_for(software).name == stack


def test_words_beside_a_name_are_facts_of_the_run() -> None:
    plain, liger = stack_for("Hugging Face Trainer"), stack_for("Hugging Face Trainer with Liger kernels")
    assert (plain.kernels.fused_norm, liger.kernels.fused_norm) == (False, True)
    assert (plain.loss.loss_kind, liger.loss.loss_kind) == ("plain", "chunked")
    overlapped, exposed = stack_for("Megatron-LLaMA"), stack_for("Megatron-LLaMA (distributed optimizer, no overlap)")
    assert (overlapped.overlap.overlap_grad, exposed.overlap.overlap_grad) == (True, False)


def test_a_recipe_of_blocks_rounds_as_rows_do() -> None:
    """torchao rounds an operand for each of its products, TransformerEngine writes both ways round in one pass."""
    torchao, engine = (stack_of(name).precision_for("mxfp8") for name in ("torchtitan", "megatron-core"))
    assert (torchao.name, torchao.rounds_each_way, torchao.param_comm_bytes) == ("fsdp-mxfp8-reduce32", True, 2)
    assert (engine.name, engine.rounds_each_way) == ("mxfp8-grad32", False)


def test_what_a_benchmark_leaves_open_is_what_its_program_can_do() -> None:
    """NeMo AutoModel recomputes whole blocks or nothing, and builds DeepSeek-V3 without its extra prediction layer."""
    told = {"software": "NeMo AutoModel (PyTorch FSDP2)", "recompute": ""}
    case = measured_case(MeasuredRow(row=0, text=ROW | told))
    assert {policy.recompute for policy in case.candidates} == {"none", "full"}
    assert "extra prediction layers not trained" in case.assumed
    assert (
        measured_case(MeasuredRow(row=0, text=ROW | told | {"recompute": "selective"})).candidates[0].recompute
        == "selective"
    )
    assert "extra prediction layers not trained" not in measured_case(MeasuredRow(row=0, text=ROW)).assumed


STAGES = {
    "source": "x", "model": "Llama3.1-405B", "layers": "126", "hidden": "16384", "gpu": "H100-80GB-SXM", "gpus": "512",
    "gpus_per_node": "8", "seq": "8192", "dtype": "bf16", "tp": "8", "pp": "8", "dp": "8", "micro_batch": "",
    "zero_stage_or_fsdp": "fsdp2(3)", "global_batch": "256", "recompute": "full", "vpp": "1", "software": "torchtitan",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        ({}, {4}),
        ({"micro_batch": "2"}, {2}),
        # 36 sequences are not 8 equal micro-batches
        ({"global_batch": "288"}, {1, 2, 4}),
        ({"pp": "1", "dp": "64"}, {1, 2, 4}),
        ({"software": "Megatron-LM"}, {1, 2, 4, 8, 16}),
    ],
)
def test_a_micro_batch_that_is_not_published_is_the_program_s_own(change: dict[str, str], sizes: set[int]) -> None:
    """torchtitan of 2024 made as many micro-batches as a pipeline has ranks, unless it was told a number."""
    case = measured_case(MeasuredRow(row=0, text=STAGES | change))
    assert {policy.micro_batch for policy in case.candidates} == sizes
    assert any("torchtitan makes 8 of them" in line for line in case.assumed) == (not change)


def test_every_number_of_chunks_that_divides_is_a_candidate() -> None:
    """Embedding and head stand for two layers: 16 stages of 8, as Llama 3 (arXiv:2407.21783, 3.3.2)."""
    case = measured_case(MeasuredRow(row=0, text=STAGES | {"vpp": "", "pp": "16", "dp": "4", "notes": "interleaved"}))
    assert {policy.vpp for policy in case.candidates} == {1, 2, 4, 8}


def test_a_program_without_a_recipe_has_its_flags_off() -> None:
    """Megatron-LM overlaps gradients, parameters and tensor-parallel traffic only when it is told to."""
    row = STAGES | {"software": "Megatron-LM", "micro_batch": "1", "zero_stage_or_fsdp": "1"}
    (policy,) = measured_case(MeasuredRow(row=0, text=row)).candidates
    assert not any((policy.overlap_grad, policy.overlap_param, policy.overlap_tp))
    assert policy.overlap_pp
    recipe, plain = predict(
        [MeasuredRow(row=i, text=row | {"software": s}) for i, s in enumerate(("NeMo", "Megatron-LM"))]
    )
    assert recipe.step_s is not None
    assert plain.step_s is not None
    assert recipe.step_s < plain.step_s


def test_a_program_that_runs_otherwise_in_bf16() -> None:
    model, stack, bf16 = model_of("gpt3-175b"), stack_of("deepspeed@megatron"), stack_of("fact:megatron-deepspeed-bf16")
    assert running(stack, model, "fp16") is stack
    as_run = running(stack, model, "bf16")
    assert bf16.stated
    assert all(as_run.setting(name) == bf16.setting(name) for name in bf16.stated)
    assert as_run.name == stack.name
    assert as_run.kernels.pointwise_passes != stack.kernels.pointwise_passes
    # a stack fitted on bf16 runs keeps its own constants, and what a profile measured stays
    bigscience = stack_of("deepspeed@bigscience")
    assert running(bigscience, model, "bf16") is bigscience
    assert running(stack.changed(host_s_per_op=1e-3), model, "bf16").host.host_s_per_op == 1e-3


def test_bf16_settings_count_in_a_prediction() -> None:
    """The same run, told by the program's name in either precision: bf16 adds up gradients apart."""
    told = {
        "source": "x", "model": "GPT-3-175B", "layers": "96", "hidden": "12288", "gpu": "A100-80GB-SXM", "gpus": "256",
        "gpus_per_node": "8", "seq": "2048", "tp": "8", "pp": "8", "dp": "4", "micro_batch": "1", "global_batch": "512",
        "recompute": "full", "flash_attention": "0", "software": "Megatron-DeepSpeed", "zero_stage_or_fsdp": "0",
        "vpp": "1",
    }  # fmt: skip
    half, brain = predict([MeasuredRow(row=i, text=told | {"dtype": d}) for i, d in enumerate(("fp16", "bf16"))])
    assert half.step_s is not None
    assert brain.step_s is not None
    assert 1.05 < brain.step_s / half.step_s < 1.3


def test_a_program_nobody_knows_is_said_in_its_row() -> None:
    (found,) = predict([MeasuredRow(row=0, text=ROW | {"software": "Mine 1.0"})])
    assert "software 'Mine 1.0' is not known; taken as generic" in found.why
    assert found.band is not None
    assert "unknown" in found.band.missing


DENSE = ROW | {
    "model": "Llama3-8B", "layers": "32", "hidden": "4096", "gpu": "H100-80GB-SXM", "gpus": "64", "gpus_per_node": "8",
    "tp": "1", "pp": "1", "ep": "", "dp": "64", "global_batch": "256", "recompute": "none",
}  # fmt: skip


def test_a_program_nobody_knows_is_not_taken_as_the_best_tuned_one() -> None:
    """It is eager: slower than a vendor's own, by what norms, rotation and the loss in passes of their own take."""
    unknown, tuned = predict(
        [MeasuredRow(row=i, text=DENSE | {"software": name}) for i, name in enumerate(("Mine 1.0", "Megatron-Core"))]
    )
    assert unknown.step_s is not None
    assert tuned.step_s is not None
    assert 1.1 < unknown.step_s / tuned.step_s < 1.6


@pytest.mark.parametrize(
    ("written", "gpu"),
    [
        ("RTX 3090", "rtx3090"), ("RTX4090-24GB", "rtx4090"), ("H100 NVL", "h100-nvl"), ("V100-32GB-SXM2", "v100"),
        ("GH200-120GB", "gh200"), ("NVIDIA A100-PCIE-40GB", "a100-40"), ("A100-PCIe-80GB", "a100-80-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
    ],
)  # fmt: skip
def test_tables_spell_gpus_as_they_like(written: str, gpu: str) -> None:
    assert measured_case(MeasuredRow(row=0, text=DENSE | {"gpu": written})).cluster.gpu.name == gpu


@pytest.mark.parametrize("gpu", ["RTX 4090 D", "L40", "MI300A", "TPU-v3", "nothing"])
def test_a_row_of_a_chip_nobody_knows_does_not_stop_a_table(gpu: str) -> None:
    other, row = predict([MeasuredRow(row=0, text=DENSE | {"gpu": gpu}), MeasuredRow(row=1, text=DENSE)])
    assert other.verdict == "unsupported"
    assert row.verdict == "ok"


@pytest.mark.parametrize("gpu", ["B200-SXM", "GB300", "MI300X", "RTX-4090", "L40S", "V100"])
def test_every_program_is_predicted_on_every_gpu(gpu: str) -> None:
    names = [name for name in stack_names() if stack_of(name).matches]
    found = predict(
        [
            MeasuredRow(row=i, text=DENSE | {"gpu": gpu, "software": stack_of(name).matches[0]})
            for i, name in enumerate(names)
        ]
    )
    assert all(one.step_s is not None for one in found)


def test_stacks_that_pass_as_one_program_are_shown_as_a_range() -> None:
    named, stated = predict(
        [
            MeasuredRow(row=0, text=ROW | {"software": "Megatron-Bridge"}),
            MeasuredRow(row=1, text=ROW | {"software": "NeMo/Megatron-Bridge 26.06"}),
        ]
    )
    steps = named.stacks_s
    assert steps is not None
    assert set(steps) == {
        "megatron-bridge@recipes",
        "megatron-bridge",
        "megatron-bridge@25.09",
        "megatron-bridge@26.04",
    }
    assert steps["megatron-bridge@recipes"] == named.step_s
    assert max(steps.values()) > 1.01 * min(steps.values())
    assert "4 stacks pass as this program" in named.why
    assert stated.stacks_s is None


@pytest.mark.parametrize(("software", "ep"), [("NeMo AutoModel (PyTorch FSDP2)", 32), ("torchtitan", 1)])
def test_experts_whose_spread_is_not_published_lie_as_the_recipes_have_them(software: str, ep: int) -> None:
    told = {"ep": "", "tp": "1", "pp": "1", "dp": "32", "gpus": "32", "gpus_per_node": "8", "gpu": "H100-80GB-SXM"}
    case = measured_case(MeasuredRow(row=0, text=ROW | told | {"software": software}))
    assert {policy.ep for policy in case.candidates} == {ep}
    assert (f"ep={ep} (not published)" in case.assumed) == (ep > 1)


@pytest.mark.parametrize(
    ("software", "one_by_one"),
    [
        ("Mine (PyTorch FSDP2, torch.compile)", False), ("Mine (PyTorch FSDP2, compiled)", False),
        ("Mine (PyTorch FSDP2)", True), ("Mine (PyTorch FSDP2, eager)", True), ("Mine (DDP, not compiled)", True),
        ("Mine (DDP, without torch.compile)", True), ("Mine 1.0 (torch.compile)", False), ("Mine 1.0", True),
    ],
)  # fmt: skip
def test_a_text_that_says_blocks_are_compiled_is_believed(software: str, one_by_one: bool) -> None:
    stack = stack_for(software)
    assert stack.kernels.one_kernel_per_op == one_by_one
    assert stack.kernels.fused_norm == stack.kernels.fuses_rotation == (not one_by_one)
    assert (
        stack.host.ops_per_layer == stack_of("torch-eager" if one_by_one else "torch-eager@compiled").host.ops_per_layer
    )
    assert stack.overlap.overlap_grad


def test_gradients_of_fsdp2_take_twice_the_network() -> None:
    """Reduced in fp32: where the network sets the pace, two gathers of 2 bytes and a reduction of 4 instead of 2."""
    slow = DENSE | {"internode_gbps_per_gpu": "25", "zero_stage_or_fsdp": "fsdp", "seq": "512", "recompute": "full"}
    first, second = predict(
        [MeasuredRow(row=i, text=slow | {"software": name}) for i, name in enumerate(("PyTorch FSDP", "PyTorch FSDP2"))]
    )
    assert first.step_s is not None
    assert second.step_s is not None
    assert second.step_s / first.step_s == pytest.approx(8 / 6, rel=0.08)
