"""Work of models that are tuned: what parallelism cuts, sends and holds of frozen weights and adapters."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import embedding_tensors, head_tensors, layer_tensors, parameters
from shardwise.spec.arch.tuned import trained_layer, trained_parameters, tuned
from shardwise.spec.job import Job, precision_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.spec.tuning import BASES, tuning_of
from shardwise.step.estimate.memory import memory_of
from shardwise.work import Work, work_of
from shardwise.work.case import training_of
from shardwise.work.messages import Piece, messages, piecewise

LLAMA, QWEN, MIXTRAL, DEEPSEEK = map(model_of, ("llama-3-8b", "qwen2.5-0.5b", "mixtral-8x7b", "deepseek-v2-lite"))
STACK = stack_of("megatron-core")


def work(model, tune: str | None, freeze: str | None = None, precision: str = "bf16", **policy) -> Work:
    chosen = Policy(**policy)
    job = Job(seq=4096, global_batch=chosen.dp, precision=precision_of(precision), tuning=tuning_of(tune, freeze))
    return work_of(training_of(model, job, STACK), Policies.of([chosen]), every_stage=True)


def held(found: Work, kind: str) -> float:
    return float(memory_of(found).kinds[kind][0, 0])


@pytest.mark.parametrize("model", [LLAMA, QWEN, MIXTRAL, DEEPSEEK], ids=lambda m: m.name)
@pytest.mark.parametrize("tune", ["lora", "dora,rank=8,targets=attention", "lora,targets=mlp"])
def test_on_one_rank_everything_is_there_once(model, tune: str) -> None:
    found = work(model, tune, zero=0)
    dense, expert = found.parameters
    assert float(dense[0, 0] + expert[0, 0]) == trained_parameters(found.model)
    assert found.frozen is not None
    assert sum(float(grid[0, 0]) for grid in found.frozen) == 2 * parameters(found.model)


def test_quantised_are_the_matrices_of_layers() -> None:
    found = work(LLAMA, "qlora", zero=0)
    matrices = sum(t.size for t in layer_tensors(LLAMA, 0) if t.product) * LLAMA.layers
    assert held(found, "parameters") == pytest.approx(
        matrices * BASES["nf4"] + (parameters(LLAMA) - matrices) * 2 + trained_parameters(found.model) * 2, rel=1e-12
    )


@pytest.mark.parametrize("tp", [2, 4, 16])
def test_tensor_parallelism_cuts_an_adapter_with_its_matrix(tp: int) -> None:
    """Outputs of B, or inputs of A; the other half is on every rank, as are copies of key/value heads."""
    found = work(LLAMA, "lora,targets=q_proj,k_proj,o_proj", zero=0, tp=tp, sp=True)
    queries, keys, hidden, rank = 4096, 1024, 4096, 16
    a_q = a_k = rank * hidden
    b_q, b_k = queries * rank / tp, keys * rank / min(tp, 8)
    a_o, b_o = rank * queries / tp, hidden * rank
    assert float(found.parameters[0][0, 0]) == LLAMA.layers * (a_q + b_q + a_k + b_k + a_o + b_o)


def test_ranks_add_up_what_each_has_a_part_of() -> None:
    sent = {m.of: m for m in work(LLAMA, "lora", zero=0, tp=4, sp=False).parameter_messages}
    assert float(sent["whole"].count[0]) == 1.0
    assert "whole" not in {m.of for m in work(LLAMA, None, zero=0, tp=4, sp=False).parameter_messages}


def dp_bytes(found, op: str) -> float:
    return sum(m.bytes * m.count for m in found if m.axis == "dp" and m.op == op)


def told(tune: str | None, precision: str = "bf16", freeze: str | None = None, **policy):
    chosen = Policy(**policy)
    job = Job(seq=4096, global_batch=chosen.dp, precision=precision_of(precision), tuning=tuning_of(tune, freeze))
    cut = piecewise(training_of(LLAMA, job, STACK), chosen)
    return messages(cut, Piece(0, 0.0, sends_on=False, sends_back=False))


def test_data_parallelism_reduces_trained_gradients_only() -> None:
    trained = trained_parameters(tuned(LLAMA, tuning_of("lora", None)))
    assert dp_bytes(told("lora", dp=8, zero=0), "all_reduce") == 4 * trained


@pytest.mark.parametrize(
    ("tune", "precision", "of_frozen"), [("lora", "bf16", 2.0), ("lora", "fsdp-mixed", 2.0), ("qlora", "bf16", None)]
)
def test_sharded_weights_are_gathered_as_they_are_kept(tune: str, precision: str, of_frozen: float | None) -> None:
    """Twice, forward and backward; of a frozen embedding, which no gradient reaches, once."""
    found = told(tune, precision, dp=8, zero=3)
    matrices = LLAMA.layers * sum(t.size for t in layer_tensors(LLAMA, 0) if t.product)
    table, head = (sum(t.size for t in tensors) for tensors in (embedding_tensors(LLAMA), head_tensors(LLAMA)))
    norms = parameters(LLAMA) - matrices - table - head
    wide = of_frozen or 2.0
    frozen = 2 * (matrices * (of_frozen or BASES["nf4"]) + (norms + head) * wide) + table * wide
    trained = trained_parameters(tuned(LLAMA, tuning_of(tune, None)))
    assert dp_bytes(found, "all_gather") == pytest.approx(frozen + 2 * 2 * trained, rel=1e-9)
    reduced = {"bf16": 4, "fsdp-mixed": 2}[precision] * trained
    assert dp_bytes(found, "reduce_scatter") == pytest.approx(reduced, rel=1e-9)


def test_frozen_layers_without_a_gradient_keep_and_send_nothing() -> None:
    found = work(LLAMA, None, "embeddings,first=8", tp=4, dp=2, sp=True, zero=1)
    below, above = found.kinds
    assert [found.model.pattern.count(kind) for kind in (0, 1)] == [8, 24]
    assert not below.saved
    assert {sent.phase for sent in below.collectives} == {"forward"}
    (whole,) = work(LLAMA, None, tp=4, dp=2, sp=True, zero=1).kinds
    assert [t.name for t in above.saved] == [t.name for t in whole.saved]
    assert all(gemm.input_grad and gemm.weight_grad for gemm in above.gemms)
    assert trained_layer(found.model, 0) == ()


def test_frozen_layers_behind_trained_embeddings_pass_gradients() -> None:
    found = work(LLAMA, None, "first=8").kinds[0]
    assert not found.forward_only
    assert all(gemm.input_grad and not gemm.weight_grad for gemm in found.gemms)


def test_weights_are_written_out_before_each_product() -> None:
    found = work(LLAMA, "qlora").kinds[1]
    matrices = sum(t.size for t in layer_tensors(LLAMA, 0) if t.product)
    wide = next(part for part in found.unfused if part.name == "dequantise")
    assert float(np.asarray(wide.forward_bytes)[0]) == pytest.approx(matrices * (BASES["nf4"] + 2))
    assert float(np.asarray(wide.backward_bytes)[0]) == pytest.approx(matrices * (BASES["nf4"] + 2))


def test_inputs_are_gathered_again_for_adapters_that_read_them() -> None:
    def again(tune: str | None) -> int:
        layer = work(LLAMA, tune, tp=4, sp=True).kinds[-1]
        return sum(sent.for_weights for sent in layer.collectives)

    assert [again(tune) for tune in (None, "lora", "lora,targets=attention", "lora,targets=down_proj")] == [2, 2, 1, 0]


@pytest.mark.parametrize("tied", [False, True])
def test_a_frozen_table_is_there_on_both_ends(tied: bool) -> None:
    model = replace(LLAMA, tied=tied)
    found = work(model, "lora", pp=4, zero=0)
    table = 2.0 * model.vocab * model.hidden
    assert found.frozen is not None
    ends, inner = (float(found.frozen[0][0, stage]) for stage in (3, 1))
    assert ends - inner == table + 2 * model.hidden
    assert not [m for m in found.parameter_messages if m.of == "table"]


def test_embeddings_alone_may_be_frozen() -> None:
    model = replace(LLAMA, tied=True)
    found = work(model, None, "embeddings", zero=0)
    assert trained_parameters(found.model) == parameters(model) - model.vocab * model.hidden
    assert not next(gemm for gemm in found.head.gemms if gemm.name == "head").weight_grad
    assert work(LLAMA, None, "embeddings").head.gemms[0].weight_grad


@pytest.mark.parametrize(
    ("tune", "freeze", "told"),
    [
        ("lora,targets=q_prj", None, "llama-3-8b has no 'q_prj' to adapt; did you mean 'q_proj'"),
        ("lora", "first=32", "leaves nothing of llama-3-8b to train"),
        (None, "first=33", "first=33, but llama-3-8b has 32 layers; write at most 32"),
        (None, "vision", "llama-3-8b has no vision tower"),
    ],
)
def test_what_a_model_does_not_have(tune: str | None, freeze: str | None, told: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        tuned(LLAMA, tuning_of(tune, freeze))
    assert told in str(raised.value)


def test_quantised_weights_are_computed_in_16_bits() -> None:
    with pytest.raises(ValueError, match="write --precision bf16"):
        work(LLAMA, "qlora", precision="fp8")
