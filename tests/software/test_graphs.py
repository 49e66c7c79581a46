"""CUDA graphs as a fact of a run: the host launches less, and nothing else changes."""

import pytest

from shardwise.question.build import open_question_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import known_stack, stack_of, with_words
from shardwise.spec.software.dispatcher import with_dispatcher
from shardwise.spec.software.graphs import BESIDE_EXPERTS, GRAPHS, REPLAYED, with_graphs
from shardwise.step.estimate.closed_form import estimate

CORE = stack_of("megatron-core")


def step(graphs: str, model: str = "qwen3-30b-a3b") -> tuple[float, float]:
    question = open_question_of(model, "8xh100", seq=4096, global_batch=64, graphs=graphs)
    times = estimate(question.case, Policies.of([Policy(dp=8, ep=8 if "a3b" in model else 1, zero=1)])).times
    return float(times.step_s[0]), float(times.parts["host"][0])


def test_what_is_replayed_is_not_waited_for() -> None:
    found = [step(graphs) for graphs in GRAPHS]
    assert found[0][0] > found[1][0] > found[2][0]
    assert found[0][1] > found[1][1] > found[2][1] == 0.0


def test_compute_that_outlasts_its_launches_gains_nothing() -> None:
    assert step("none", "llama-3-8b")[0] == step("partial", "llama-3-8b")[0]


def test_programs_that_replay_layers_by_themselves_can_be_told_not_to() -> None:
    recorded, _ = with_words(stack_of("megatron-bridge@26.04"), "MLPerf v5.1")
    assert recorded.host.ops_per_layer == REPLAYED
    assert with_graphs(recorded, "partial") == recorded
    assert with_graphs(recorded, "none").host.ops_per_layer == CORE.host.ops_per_layer
    assert with_graphs(stack_of("megatron-bridge"), "none").experts.ops_per_expert_layer_in_rack == -1.0


@pytest.mark.parametrize(
    ("text", "graphs"), [("partial CUDA graphs", "partial"), ("CUDA graphs of attention and routing", "partial")]
)
def test_words_of_a_run_say_the_same(text: str, graphs: str) -> None:
    found, _ = with_words(known_stack("megatron-core"), text)
    assert found.host.ops_per_layer == with_graphs(CORE, graphs).host.ops_per_layer == 58.0


def test_routing_that_is_replayed_leaves_the_exchange_and_the_products_to_launch() -> None:
    """Not where the host reads the counts of a plain all-to-all."""
    once = with_graphs(with_dispatcher(CORE, "hybridep"), "partial").experts
    assert once.ops_per_expert_layer == BESIDE_EXPERTS < CORE.experts.ops_per_expert_layer
    copies = with_graphs(with_dispatcher(CORE, "alltoall"), "partial").experts
    assert copies.ops_per_expert_layer == CORE.experts.ops_per_expert_layer


def test_a_step_that_is_one_graph_launches_no_layer() -> None:
    found, _ = with_words(known_stack("megatron-core"), "full iteration CUDA graph")
    assert found.host.ops_per_layer == found.host.ops_per_update == 0.0


def test_other_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="graphs: 'half' is unknown"):
        with_graphs(CORE, "half")
