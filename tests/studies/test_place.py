"""Nodes are chosen by the step on the site's own switches: never worse than as listed, whole groups together."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.fabric.site import site_of_cables, site_of_columns
from shardwise.question.studies.build import report_of
from shardwise.question.studies.fabric.build import fabric_report
from shardwise.question.studies.place import choose_nodes

NODES = [f"n{i:02d}" for i in range(32)]
BUDGET = 500


def site(leaf=8):
    columns = {"leaf": [f"leaf{i // leaf}" for i in range(32)], "spine": ["spine"] * 32}
    return site_of_columns(NODES, columns, "test")


def case(gpus=128, narrow=4.0, model="mixtral-8x7b"):
    whole = cluster_of("dgx-h100:1024")
    node, leaf, spine = whole.levels
    levels = (node, replace(leaf, degree=8), replace(spine, degree=8, oversubscription=narrow))
    cluster = replace(whole, gpus=gpus, levels=levels)
    return case_of(model_of(model), cluster, Job(seq=4096, global_batch=128), stack_of("megatron-core"))


MIXED = [NODES[i] for i in np.arange(32).reshape(4, 8).T.ravel()]
"""the leaves in turn: no two neighbours share one"""
EXPERTS = Policy(tp=2, pp=2, dp=32, ep=8)


def test_nodes_packed_are_the_step_of_the_fabric_verb():
    """On a regular site, listed leaf by leaf, nothing differs from `fabric`'s tree with ranks packed."""
    whole = case()
    found = choose_nodes(whole, EXPERTS, site(), NODES, budget=BUDGET)
    study = fabric_report(whole, EXPERTS)
    order = next(each for each in study.report.orders if each.deal == "packed" and each.axes == "tp > dp > pp")
    assert found.listed.communication_s == pytest.approx(order.communication_s, rel=1e-6)
    assert report_of(whole, EXPERTS).step_s == pytest.approx(found.listed.step_s, rel=0.1)


def test_scattered_nodes_are_brought_together():
    found = choose_nodes(case(), Policy(tp=2, pp=2, dp=32, ep=32), site(), MIXED, budget=BUDGET)
    assert found.chosen.step_s < 0.99 * found.listed.step_s
    assert found.chosen.step_s == min(order.step_s for order in found.orders)
    listed, chosen = ({g.axis: g for g in order.groups}["ep"] for order in (found.listed, found.chosen))
    assert (listed.inside["leaf"], chosen.inside["leaf"]) == (0, chosen.groups)
    assert found.run == 8
    assert found.blocks_used == {"leaf": 2, "spine": 1}


def test_every_node_is_free_and_taken_once():
    free = [name for number, name in enumerate(NODES) if number % 5]
    found = choose_nodes(case(), EXPERTS, site(), free, budget=BUDGET)
    for order in found.orders:
        assert len(order.nodes) == len(set(order.nodes)) == 16
        assert set(order.nodes) <= set(free)
    assert [order.name for order in found.orders] == ["as listed", "packed", "in segments", "searched"]


def test_segments_lie_in_one_leaf_each():
    """Leaves with 7, 6, 5 and 4 free nodes: segments of 4 fit, of 8 do not."""
    free = [NODES[8 * leaf + i] for leaf, count in enumerate((7, 6, 5, 4)) for i in range(count)]
    found = choose_nodes(case(), Policy(tp=8, pp=1, dp=16), site(), free, budget=BUDGET)
    segments = next(order for order in found.orders if order.name == "in segments")
    blocks = [NODES.index(name) // 8 for name in segments.nodes]
    assert all(len(set(blocks[i : i + 4])) == 1 for i in range(0, 16, 4))


def test_with_full_bisection_every_place_is_as_good():
    found = choose_nodes(case(narrow=1.0), EXPERTS, site(), MIXED, budget=BUDGET)
    assert found.chosen is found.listed


def test_racks_of_one_nvlink_domain():
    """Experts in racks go over NVLink; the plain order crosses racks."""
    hosts = [f"t{rack}-{i:02d}" for rack in range(4) for i in range(18)]
    racks = {"rack": [name[:2] for name in hosts], "leaf": ["leaf"] * len(hosts)}
    whole = case_of(model_of("mixtral-8x7b"), cluster_of("gb200-nvl72:128"), Job(seq=4096, global_batch=128),
                    stack_of("megatron-core"))  # fmt: skip
    free = [name for name in hosts if int(name[3:]) % 18 < 10]
    found = choose_nodes(whole, Policy(pp=2, dp=64, ep=8), site_of_columns(hosts, racks, "test"), free, budget=BUDGET)
    assert found.node_gpus == 4
    experts = {group.axis: group for group in found.chosen.groups}["ep"]
    assert experts.inside["rack"] == experts.groups
    without = site_of_columns(hosts, {"leaf": racks["leaf"]}, "test")
    with pytest.raises(ValueError, match="one NVLink domain spans many nodes"):
        choose_nodes(whole, Policy(pp=2, dp=64, ep=8), without, free)


@pytest.mark.parametrize(("policy", "free", "told"), [
    (Policy(tp=8, dp=16), NODES[:3], "free: 3 nodes, but the policy's 128 GPUs need 16 of 8"),
    (Policy(tp=4, dp=31), NODES, "are not whole nodes of 8"),
    (Policy(tp=8, dp=16), ["n00", "zz"], "'zz' is not in the topology"),
])  # fmt: skip
def test_what_cannot_be_placed_says_why(policy, free, told):
    with pytest.raises(ValueError, match=told):
        choose_nodes(case(), policy, site(), free)


def test_what_the_search_does_not_place_is_packed_with_a_note():
    found = choose_nodes(case(model="llama-3-8b"), Policy(dp=128, zero=3), site(), MIXED, budget=BUDGET)
    assert [order.name for order in found.orders][-1] == "in segments"
    assert any("zero: parameters gathered" in note for note in found.notes)


def test_folded_clos_and_rails_are_blocks():
    """Every leaf on every spine; every node on two rails of its unit."""
    cables = [(f"n{i}", f"leaf{i // 4}.{rail}") for i in range(16) for rail in range(2)]
    cables += [(f"leaf{unit}.{rail}", f"spine{s}") for unit in range(4) for rail in range(2) for s in range(3)]
    found = site_of_cables([f"n{i}" for i in range(16)], cables, "test")
    assert [len(level.names) for level in found.levels] == [4, 1]
    assert found.levels[0].block.tolist() == np.repeat(np.arange(4), 4).tolist()


def test_separate_islands_get_a_level_above_with_a_note():
    columns = {"leaf": [f"leaf{i // 8}" for i in range(32)]}
    found = choose_nodes(case(), EXPERTS, site_of_columns(NODES, columns, "test"), NODES, budget=BUDGET)
    assert any("a level above them is assumed" in note for note in found.notes)
