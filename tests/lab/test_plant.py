"""An emulated cluster is the planner's link graph: the same ways, rates divided by one number."""

from itertools import pairwise

import numpy as np
import pytest

from shardwise.fabric.wiring import Wiring
from shardwise_lab.build import commands, core_mask
from shardwise_lab.cables import host_address, plant_of
from shardwise_lab.emulated import emulated_of, fabric_names
from shardwise_lab.faults import Fault, check_faults, fault_of, rerouted
from shardwise_lab.knobs import Knobs

ONE_WAY = [name for name in fabric_names() if name != "leaf-spine"]


def way(plant, source: int, target: int) -> list[tuple[str, str]]:
    """(vertex, device) by which a packet leaves each vertex: the route to the target itself, or the one to all."""
    at, found = f"h{source}", []
    next_to = {}
    for cable in plant.cables:
        for end in (0, 1):
            next_to[cable.ends[end], cable.devices[end]] = cable.ends[1 - end]
    while at != f"h{target}":
        beside = [d for (v, d), other in next_to.items() if v == at and other == f"h{target}"]
        routes = {route.target: route.ways for route in plant.routes if route.vertex == at}
        device = (
            beside[0] if beside and not at.startswith("h") else routes.get(host_address(target), routes.get(""))[0][1]
        )
        found.append((at, device))
        at = next_to[at, device]
        assert len(found) < 10, "a loop"
    return found


@pytest.mark.parametrize("name", ONE_WAY)
def test_packets_go_the_way_the_planner_says(name):
    fabric = emulated_of(name)
    plant = plant_of(fabric)
    sent_by = {}
    for cable in plant.cables:
        sent_by[cable.ends[0], cable.devices[0]], sent_by[cable.ends[1], cable.devices[1]] = cable.out, cable.back
    for source in range(fabric.gpus):
        for target in range(fabric.gpus):
            if source != target:
                links = fabric.tree.routes(np.array([source]), np.array([target])).links[0]
                expected = [int(link) for link in links if link < len(fabric.tree.links)]
                assert [sent_by[hop] for hop in way(plant, source, target)] == expected, (source, target)


def test_every_link_that_is_used_is_a_cable_once():
    for name in fabric_names():
        fabric = emulated_of(name)
        laid = [link for cable in plant_of(fabric).cables for link in (cable.out, cable.back)]
        assert len(set(laid)) == len(laid)
        inside = fabric.tree.cluster.node_size > 1
        links = fabric.tree.links
        assert sorted(laid) == [link for link in range(len(links)) if inside or links.level[link] > 0]


def test_all_rates_are_the_clusters_over_one_number():
    for rate in (20e6 / 8, None):
        fabric = emulated_of("rails", Knobs(card_bytes_per_s=rate))
        node, leaf, _ = fabric.cluster.levels
        capacity = fabric.tree.links.capacity
        assert capacity[fabric.tree.offsets[0]] == pytest.approx(node.bandwidth / fabric.dilation)
        assert capacity[fabric.tree.offsets[2]] == pytest.approx(leaf.bandwidth / fabric.dilation)
        if rate:
            assert capacity[fabric.tree.offsets[2]] == pytest.approx(rate)


def test_hashed_spines_are_all_offered_to_a_leaf():
    plant = plant_of(emulated_of("leaf-spine"))
    up = [route for route in plant.routes if route.vertex == "l0-0"]
    assert [len(route.ways) for route in up] == [4]
    assert len({device for _, device in up[0].ways}) == 4


def test_a_cut_cable_is_left_out_by_the_other_leaf():
    plant = plant_of(emulated_of("leaf-spine"))
    cut = next(cable for cable in plant.cables if cable.ends == ("l0-0", "s0-2"))
    found = rerouted(plant, cut)
    assert set(found) == {"l1-0"}
    assert len(found["l1-0"]) == 4
    assert all(line.count("nexthop") == 3 and " dev u2" not in line for line in found["l1-0"])
    assert rerouted(plant, plant.cables[0]) == {}


def test_every_name_is_ours_and_no_interface_is_made_outside():
    fabric = emulated_of("rails")
    lines = commands("7", fabric, plant_of(fabric))
    assert all(space.startswith("swlab-7-") for space in lines)
    for made in lines.values():
        for line in made:
            if "type veth" in line:
                assert line.split("netns ")[1] in lines
    order = list(lines)
    assert len(order) == len(set(order)) == 8 + 2 + 4 + 1


@pytest.mark.parametrize(("text", "words"), [
    ("dgx-h100:64", "2 to 16"), ("1xh100", "2 to 16"), ("stra4", "star4"), ("missing.yaml", "missing.yaml"),
])  # fmt: skip
def test_what_cannot_be_built_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        emulated_of(text)


@pytest.mark.parametrize(("knobs", "words"), [
    ({"congestion": "vegas"}, "congestion"), ({"card_bytes_per_s": 1.0}, "rate"), ({"buffer_bytes": 1}, "buffer"),
    ({"ecn_bytes": 1}, "ecn"), ({"oversubscription": 0.5}, "over"), ({"window_bytes": 1}, "window"),
])  # fmt: skip
def test_knobs_out_of_range_are_refused(knobs, words):
    with pytest.raises(ValueError, match=words):
        Knobs(**knobs)


def test_an_oversubscription_needs_a_spine():
    with pytest.raises(ValueError, match="over"):
        emulated_of("star4", Knobs(oversubscription=2.0))
    thin, wide = (emulated_of("two-leaves", Knobs(oversubscription=factor)) for factor in (8.0, 2.0))
    up = thin.tree.offsets[4]
    assert wide.tree.links.capacity[up] / thin.tree.links.capacity[up] == pytest.approx(4.0)


def test_faults_are_read_and_held_against_the_fabric():
    assert fault_of("leaf 0 > spine 0@2.5", "cut") == Fault(link="leaf 0 > spine 0", at_s=2.5, share=0.0)
    assert fault_of("leaf 0 > spine 0=0.25@2", "slow-at") == Fault(link="leaf 0 > spine 0", at_s=2.0, share=0.25)
    for text, flag in (("leaf", "cut"), ("a@b", "cut"), ("a=2@1", "slow-at"), ("a@1", "slow-at"), ("@1", "cut")):
        with pytest.raises(ValueError, match=flag):
            fault_of(text, flag)
    with pytest.raises(ValueError, match="not a link of this fabric"):
        check_faults(emulated_of("star4"), [Fault(link="nothing", at_s=1.0, share=0.0)])


def test_the_planners_own_clusters_can_be_emulated():
    fabric = emulated_of("2x4xh100")
    assert fabric.gpus == 8
    assert {cable.ends[1][0] for cable in plant_of(fabric).cables} >= {"n", "l"}
    assert [a < b for a, b in pairwise(sorted(set(fabric.tree.links.capacity.tolist())))]
    assert emulated_of("leaf-spine", wiring=Wiring()).tree.wiring.routing == "spray"


def test_a_core_is_written_as_the_kernel_reads_masks():
    assert [core_mask(core) for core in (0, 3, 31, 32, 69)] == [
        "1", "8", "80000000", "1,00000000", "20,00000000,00000000",
    ]  # fmt: skip
