"""What rows state about loss, recomputed modules, offloading and gradients, in columns or in notes."""

import pytest

from shardwise.measured.validate.facts import (
    Offloading,
    cards_of_a_node,
    dated_software,
    flushes,
    named_loss,
    named_modules,
    offloads,
    recomputed_layers,
    sharing_ranks,
    shown_beside,
    with_stated_dispatcher,
    with_stated_gradients,
    with_stated_state,
    with_stated_words,
)
from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.job import PRECISIONS, precision_of
from shardwise.spec.software import stack_of


def _row(**text: str) -> MeasuredRow:
    return MeasuredRow(row=7, text=text)


@pytest.mark.parametrize(
    ("row", "modules"),
    [
        (_row(recompute_modules="moe_act+layernorm"), ("moe_act", "layernorm")),
        (_row(notes="recompute_modules=mla_up_proj+mlp; peak after iteration 2"), ("mla_up_proj", "mlp")),
        (_row(notes="SFT FP8; recompute mlp+core_attn; PRIMARY=mem"), ("mlp", "core_attn")),
        (_row(notes="recompute_modules=none; mean of iterations"), ()),
        (_row(notes="recompute taken from HEAD perf_recipes"), ()),
        (_row(), ()),
    ],
)
def test_modules(row: MeasuredRow, modules: tuple[str, ...]) -> None:
    assert named_modules(row) == modules


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (
            _row(software="torchtitan", source_ref="benchmarks/llama3_h100_202412_torchtitan.md"),
            "torchtitan, torchtitan 2024",
        ),
        (_row(software="torchtitan", source_ref="benchmarks/llama3-8b_h200_202506_x.md"), "torchtitan"),
        (_row(software="torchtitan 2025", source_ref="llama3_h100_202412.md"), "torchtitan 2025"),
        (_row(software="NeMo", source_ref="table of 2024-12"), "NeMo"),
        (_row(software="torchtitan", source_ref="issue 20241299"), "torchtitan"),
    ],
)
def test_the_year_of_a_publication_tells_the_release(row: MeasuredRow, text: str) -> None:
    assert dated_software(row) == text


EXPERTS = {
    "model": "mixtral-8x7b", "seq": "4096", "gpu": "H100-80GB-SXM", "gpus": "64", "ep": "8", "global_batch": "512",
    "zero_stage_or_fsdp": "1", "software": "Megatron-Core", "recompute": "full",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "sizes"),
    [
        ({}, {1}),
        ({"micro_batch": "2"}, {2}),
        ({"gpu": "B200-SXM"}, {1, 2, 4, 8}),
        ({"model": "llama-3-8b", "ep": ""}, {1, 2, 4, 8}),
    ],
)
def test_a_micro_batch_nobody_published(changed: dict[str, str], sizes: set[int]) -> None:
    case = measured_case(_row(**(EXPERTS | changed)))
    assert {policy.micro_batch for policy in case.candidates} == sizes


def test_a_vocabulary_that_is_stated_is_that_of_the_run() -> None:
    row = {"model": "qwen3-32b", "hidden": "5120", "seq": "4096", "gpu": "H100-80GB-SXM", "gpus": "64", "tp": "8"}
    stated = {"": 151_936, "262144": 262_144, "152064": 152_064, "151643": 151_936, "64000": 64_000}
    assert {words: measured_case(_row(**row, vocab=words)).model.vocab for words in stated} == stated


def test_offloads_that_notes_leave_open() -> None:
    notes = "HEAD recipes offload activations of 5-20 layers to the CPU (NeMo 25.x config: 405B offloads 60 layers)"
    found = offloads(_row(notes=notes), 80)
    assert found == (Offloading("none"), *(Offloading("activations", s) for s in (0.062, 0.125, 0.25, 0.75)))
    assert offloads(_row(), 80) == (Offloading("none"),)
    assert [o.what for o in offloads(_row(notes="ZeRO-3 (+ CPU offload for the larger)"), 80)] == [
        "none", "optimizer", "activations", "both"
    ]  # fmt: skip
    assert offloads(_row(offload="optimizer", offload_share="0.5"), 80) == (Offloading("optimizer", 0.5),)


@pytest.mark.parametrize(
    ("recipe", "notes", "kept"),
    [
        ("bf16", "packed samples; moments in bf16; whole seconds", (2, 4, 4, 2, 4)),
        ("fp8-blockwise", "fp8 by blocks, moments in bf16", (2, 4, 4, 2, 2)),
        ("bf16-moments16", "gradients and moments in fp32", (2, 2, 4, 4, 2)),
        ("bf16", "autocast with weights in fp32", (2, 4, 4, 4, 4)),
    ],
)
def test_what_is_kept_of_a_parameter(recipe: str, notes: str, kept: tuple[float, ...]) -> None:
    found = with_stated_state(_row(notes=notes), precision_of(recipe))
    assert kept == (
        found.param_bytes, found.grad_bytes, found.master_bytes, found.moment_bytes, found.grad_comm_bytes
    )  # fmt: skip


def test_two_recipes_have_two_names() -> None:
    """Rows are priced together by the name of their recipe."""
    plain = PRECISIONS["bf16"]
    assert with_stated_state(_row(notes="moments in bf16"), plain).name != plain.name


def test_the_driver_shows_more_than_a_programs_own_counters() -> None:
    stack = stack_of("megatron-core")
    assert shown_beside(_row(notes="memory by nvidia-smi"), stack) == stack.memory.reserve_bytes > 0
    assert shown_beside(_row(notes="peak allocated after iteration 2"), stack) == 0
    assert shown_beside(_row(notes="memory by nvidia-smi"), stack_of("deepspeed@bigscience")) == 0


def test_how_many_layers_recompute() -> None:
    assert recomputed_layers(_row(recompute_layers="10"), 80) == 10
    assert recomputed_layers(_row(notes="A100; recompute_layers=50"), 20) == 20
    assert recomputed_layers(_row(), 80) == -1
    with pytest.raises(ValueError, match="row 7: recompute_layers is 'half'; write how many layers"):
        recomputed_layers(_row(recompute_layers="half"), 80)


def test_loss_and_gradients() -> None:
    assert named_loss(_row(loss="chunked")) == "chunked"
    assert named_loss(_row(notes="FSDP2; loss=fused; x")) == "fused"
    assert with_stated_gradients(_row(grad_dtype="bf16"), PRECISIONS["bf16"]).grad_bytes == 2
    assert with_stated_gradients(_row(), PRECISIONS["bf16"]) is PRECISIONS["bf16"]
    with pytest.raises(ValueError, match="row 7: loss is 'liger'; write plain, fused, chunked"):
        named_loss(_row(loss="liger"))
    with pytest.raises(ValueError, match="row 7: recompute_modules has 'norms'"):
        named_modules(_row(recompute_modules="norms"))


def test_a_row_becomes_a_policy() -> None:
    row = _row(
        source="x", model="llama-3-8b", gpu="H100-80GB-SXM", gpus="8", seq="8192", global_batch="64", micro_batch="1",
        recompute="selective", recompute_modules="mlp", loss="fused", offload="optimizer", offload_share="0.25",
        grad_dtype="fp32", software="Megatron-LM",
    )  # fmt: skip
    case = measured_case(row)
    (policy,) = case.candidates
    assert (policy.recompute_modules, policy.loss, policy.offload, policy.offload_share) == (
        ("mlp",), "fused", "optimizer", 0.25
    )  # fmt: skip
    assert case.job.precision.grad_bytes == 4


@pytest.mark.parametrize(
    ("row", "dispatch"),
    [
        (_row(notes="all-to-all dispatcher; PRIMARY=step"), "copies"),
        (_row(notes="DeepEP, recompute norm+act"), "once"),
        (_row(notes="; HybridEP; NNODES x 4 GPUs"), "once"),
        (_row(dispatcher="allgather"), "gather"),
        (_row(notes="dispatcher=alltoall; DeepEP was slower"), "copies"),
        (_row(), "once"),
    ],
)
def test_dispatchers(row: MeasuredRow, dispatch: str) -> None:
    assert with_stated_dispatcher(row, stack_of("megatron-core@dev")).experts.dispatch == dispatch


def test_an_exchange_beside_another_micro_batch_hides_as_in_megatron_core() -> None:
    deep = stack_of("megatron-core@dev")
    overlapped = with_stated_dispatcher(_row(notes="DeepEP + 1f1b overlap"), deep)
    assert overlapped.experts.overlap_ep == stack_of("megatron-core@hai-llm").experts.overlap_ep > 0.0
    assert overlapped.experts.exchange_sms > 0.0
    assert with_stated_dispatcher(_row(notes="DeepEP"), deep) is deep


def test_an_unknown_dispatcher_is_refused() -> None:
    with pytest.raises(ValueError, match="row 7: dispatcher is 'deep'; write alltoall"):
        with_stated_dispatcher(_row(dispatcher="deep"), stack_of("megatron-core"))


def test_runs_of_one_job_with_two_dispatchers_are_predicted_apart() -> None:
    given = _row(
        source="s", model="Qwen3-235B-A22B", gpu="H100-80GB-SXM", gpus="256", seq="4096", global_batch="2048", tp="2",
        pp="32", vpp="3", ep="8", micro_batch="1", recompute="none", zero_stage_or_fsdp="1",
        software="Megatron-Core dev",
    ).text  # fmt: skip
    rows = [MeasuredRow(row=n, text=given | {"dispatcher": name}) for n, name in enumerate(("flex", "alltoall"))]
    near, counted = (prediction.step_s or 0.0 for prediction in predict(rows))
    assert counted > 1.02 * near


def test_a_program_without_zero_2_across_stages_ran_zero_1() -> None:
    given = _row(
        source="s", model="GPT-3-175B", gpu="A100-80GB-SXM", gpus="256", seq="2048", global_batch="768", tp="8",
        zero_stage_or_fsdp="2", software="Megatron-Core",
    ).text  # fmt: skip
    staged, flat = (
        measured_case(MeasuredRow(row=1, text=given | {"pp": pp, "dp": dp})) for pp, dp in (("8", "4"), ("1", "32"))
    )
    assert {policy.zero for policy in staged.candidates} == {1}
    assert any("zero=1" in line for line in staged.assumed)
    assert {policy.zero for policy in flat.candidates} == {2}


@pytest.mark.parametrize(
    ("cell", "stage", "group"),
    [
        ("fsdp", 3, 0),
        ("FSDP2", 3, 0),
        ("fsdp-grad(2)", 2, 0),
        ("fsdp2(3)", 3, 0),
        ("1", 1, 0),
        ("hsdp", 3, 8),
        ("hsdp(3)", 3, 8),
        ("hsdp(32)", 3, 32),
    ],
)
def test_how_a_run_was_sharded(cell: str, stage: int, group: int) -> None:
    row = _row(
        source="s", model="Llama2-7B", gpu="A100-80GB-SXM", gpus="128", seq="4096", global_batch="256", tp="1", pp="1",
        dp="128", micro_batch="2", recompute="none", zero_stage_or_fsdp=cell, software="PyTorch FSDP",
    )  # fmt: skip
    case = measured_case(row)
    assert {(policy.zero, policy.shard_group) for policy in case.candidates} == {(stage, group)}
    assert not any("zero" in line for line in case.assumed)


@pytest.mark.parametrize(("notes", "ranks"), [("zero1=8; RoCE", 8), ("zero1=-1", 0), ("zero1=64", 0), ("", 0)])
def test_replicas_that_share_one_optimizer(notes: str, ranks: int) -> None:
    assert sharing_ranks(_row(notes=notes), 64) == ranks


@pytest.mark.parametrize(
    ("notes", "stages", "times"),
    [("TE+DeepEP; local batch 8; mock data", 4, 4), ("local batch 8", 1, 1), ("local batch 3", 4, 1), ("", 4, 1)],
)
def test_pipelines_of_one_step(notes: str, stages: int, times: int) -> None:
    assert flushes(_row(notes=notes), stages, 8192, 256) == times


def test_a_step_of_several_pipelines_is_as_long_as_these() -> None:
    """Each has the bubble of its own few micro-batches, which one pipeline of all would have once."""
    text = {
        "source": "a page", "model": "llama-3-8b", "gpu": "H100", "gpus": "32", "seq": "4096", "global_batch": "128",
        "micro_batch": "1", "tp": "1", "pp": "4", "vpp": "1", "cp": "1", "dp": "8", "zero_stage_or_fsdp": "1",
        "recompute": "none", "software": "torchtitan",
    }  # fmt: skip
    rows = [_row(**text), _row(**text, notes="local batch 4"), _row(**(text | {"global_batch": "32"}))]
    found = [predict([row])[0] for row in rows]
    whole, cut, quarter = (each.step_s or 0.0 for each in found)
    # the optimizer runs once for all of them
    assert cut == pytest.approx(4 * quarter, rel=0.05)
    assert cut < 4 * quarter
    assert cut > 1.3 * whole > 0.0
    assert "fills and drains 4 times" in found[1].why


@pytest.mark.parametrize(
    ("row", "cards"),
    [
        (_row(notes="zero1=-1; 4 x 100 Gb RoCE per node; shape from configs/7B_sft.py"), 4),
        (_row(notes="8 x 400 Gb/s InfiniBand per node"), 8),
        (_row(cards_per_node="2"), 2),
        (_row(notes="2 x 8 GPUs"), 0),
        (_row(), 0),
    ],
)
def test_cards_that_the_gpus_of_a_node_share(row: MeasuredRow, cards: int) -> None:
    assert cards_of_a_node(row) == cards


def test_an_expert_model_that_only_the_columns_describe() -> None:
    """24 layers, each 8 experts of three matrices 2,048 x 5,632 and 2.5 x 2,048^2 of attention, and two tables."""
    shape = {"layers": "24", "hidden": "2048", "heads": "16", "kv_heads": "4", "ffn": "5632", "glu": "1",
             "vocab": "32000", "moe_experts": "8", "moe_topk": "2"}  # fmt: skip
    row = _row(source="s", model="mine", gpu="H200", gpus="8", seq="4096", global_batch="64", ep="8", **shape)
    case = measured_case(row)
    layers = 24 * (8 * 3 * 2048 * 5632 + 2.5 * 2048**2)
    assert parameters(case.model) == pytest.approx(layers + 2 * 32000 * 2048, rel=0.01)
    assert "every layer has 8 experts of width 5632, none of them shared" in case.assumed
    assert {policy.ep for policy in case.candidates} == {8}
    told = predict([_row(**row.text | {"ffn": ""})])[0]
    assert (told.verdict, "ffn, the width of an expert, is not stated" in told.why) == ("unsupported", True)


@pytest.mark.parametrize(("notes", "kernel"), [
    ("flash attention 3; three steps behind one", "flash"),
    ("round-robin routing; FA4", "flash"),
    ("FA2", "flash2"),
    ("FA2 against FA3", "sdpa"),
    ("faster than FA", "sdpa"),
])  # fmt: skip
def test_notes_may_name_the_kernel_of_attention(notes: str, kernel: str) -> None:
    assert with_stated_words(_row(notes=notes), stack_of("torchtitan")).kernels.attention_kernel == kernel


def test_partial_graphs_are_read_from_the_software() -> None:
    row = _row(software="Megatron-Bridge 26.08 (partial CUDA graphs)", dispatcher="hybridep")
    around = with_stated_dispatcher(row, stack_of("megatron-bridge")).experts.ops_per_expert_layer
    assert around < stack_of("megatron-bridge").experts.ops_per_expert_layer
