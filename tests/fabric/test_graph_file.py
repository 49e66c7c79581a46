"""Fabrics from files: ways, equal splits, and every mistake named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.fabric import Wiring, tree_of
from shardwise.fabric.graph_file import graph_from_yaml, graph_of
from shardwise.fabric.phases import messages_of
from shardwise.fabric.solver import max_min
from shardwise.spec.load import cluster_of

TWO_LEAVES = """
name: two-leaves
gpus: [h0, h1, h2, h3]
nodes: [[h0, h1], [h2, h3]]
switches: [nv0, nv1, leaf0, leaf1, s0, s1]
links:
  - {from: [h0, h1], to: nv0, bandwidth: 450 GB/s}
  - {from: [h2, h3], to: nv1, bandwidth: 450 GB/s}
  - {from: [h0, h1], to: leaf0, bandwidth: 400 Gbps, latency: 1 us}
  - {from: [h2, h3], to: leaf1, bandwidth: 400 Gbps, latency: 1 us}
  - {from: [leaf0, leaf1], to: [s0, s1], bandwidth: 200 Gbps}
"""


def names(graph, row):
    return {graph.links.name_of(int(link)) for link in row if link < len(graph.links)}


class TestWays:
    def test_inside_a_node_and_outside(self):
        graph = graph_from_yaml(TWO_LEAVES)
        inside, outside = graph.routes(np.array([0, 0]), np.array([1, 2])).links
        assert names(graph, inside) == {"h0 > nv0", "nv0 > h1"}
        assert names(graph, outside) == {
            "h0 > leaf0", "leaf0 > s0", "leaf0 > s1", "s0 > leaf1", "s1 > leaf1", "leaf1 > h2"
        }  # fmt: skip
        assert graph.links.level[:8].tolist() == [0] * 8
        assert graph.links.level[8:].all()
        assert graph.rail.tolist() == [0, 1, 0, 1]
        assert graph.unit[0] == graph.unit[1] != graph.unit[2]

    def test_switches_inside_nodes_can_add(self):
        graph = graph_from_yaml(TWO_LEAVES)
        into, out = graph.reducing(np.array([0, 3]))
        assert [graph.links.name_of(int(link)) for link in (*into, *out)] == [
            "h0 > nv0", "h3 > nv1", "nv0 > h0", "nv1 > h3"
        ]  # fmt: skip
        bare = graph_from_yaml("gpus: [a, b]\nlinks: [{from: a, to: b, bandwidth: 1 GB/s}]")
        assert [ends.tolist() for ends in bare.reducing(np.array([0, 1]))] == [[-1, -1], [-1, -1]]
        with pytest.raises(ValueError, match="no switch joins"):
            messages_of("nvls", "all_reduce", np.array([[0, 1]]), bare, 8).flows(bare)
        assert len(messages_of("nvls", "all_reduce", np.array([[0, 1]]), graph, 8).flows(graph)) == 4

    def test_spraying_splits_by_capacity(self):
        text = TWO_LEAVES.replace("[leaf0, leaf1], to: [s0, s1], bandwidth: 200 Gbps", "[leaf0, leaf1], to: s0, "
            "bandwidth: 300 Gbps}\n  - {from: [leaf0, leaf1], to: s1, bandwidth: 100 Gbps")  # fmt: skip
        graph = graph_from_yaml(text)
        routes = graph.routes(np.array([0]), np.array([3]))
        assert routes.weight is not None
        part = {
            graph.links.name_of(int(link)): share for link, share in zip(routes.links[0], routes.weight[0], strict=True)
        }
        assert (part["leaf0 > s0"], part["leaf0 > s1"]) == (0.75, 0.25)
        assert max_min(routes.links, graph.links.capacity, weight=routes.weight)[0] == pytest.approx(50e9)

    def test_a_hash_picks_one_way(self):
        graph = graph_from_yaml(TWO_LEAVES, wiring=Wiring(routing="ecmp", connections=64))
        routes = graph.routes(np.array([0]), np.array([2]))
        ways = {frozenset(names(graph, row)) for row in routes.links}
        assert len(ways) == 2
        assert all(len(way) == 4 for way in ways)
        assert routes.share.sum() == pytest.approx(1.0)

    def test_agrees_with_the_arithmetic_of_a_tree(self):
        """The same fabric written as links gives the same rates for the same messages."""
        tree = tree_of(cluster_of("dgx-h100:64"), Wiring(cross_rail="spine"))
        text = ["gpus: [" + ", ".join(f"g{i}" for i in range(64)) + "]"]
        text += [
            "nodes: [" + ", ".join("[" + ", ".join(f"g{8 * n + i}" for i in range(8)) + "]" for n in range(8)) + "]"
        ]
        switches = [f"nv{n}" for n in range(8)] + [f"leaf{r}" for r in range(8)] + ["spine"]
        text += ["switches: [" + ", ".join(switches) + "]", "links:"]
        for n in range(8):
            mine = ", ".join(f"g{8 * n + i}" for i in range(8))
            text.append(f"  - {{from: [{mine}], to: nv{n}, bandwidth: 450 GB/s}}")
        for r in range(8):
            mine = ", ".join(f"g{8 * n + r}" for n in range(8))
            text.append(f"  - {{from: [{mine}], to: leaf{r}, bandwidth: 400 Gbps}}")
            text.append(f"  - {{from: leaf{r}, to: spine, bandwidth: 400 Gbps, ports: 8}}")
        graph = graph_from_yaml("\n".join(text))
        random = np.random.default_rng(2)
        source, target = random.integers(0, 64, 200), random.integers(0, 64, 200)
        ours, theirs = tree.routes(source, target), graph.routes(source, target)
        np.testing.assert_allclose(
            max_min(ours.links, tree.links.capacity),
            max_min(theirs.links, graph.links.capacity, weight=theirs.weight),
            rtol=1e-9,
        )


BAD = [
    ("", "not a mapping"),
    ("gpus: [a]", "links is missing"),
    ("gpus: []\nlinks: []", "gpus"),
    (TWO_LEAVES.replace("s0, s1]\n", "s0, h1]\n"), "named twice"),
    (TWO_LEAVES.replace("to: nv0", "to: nv9"), "did you mean"),
    (TWO_LEAVES.replace("to: nv0", "to: h0"), "write another name: a link joins two"),
    (TWO_LEAVES.replace("450 GB/s", "450"), "no unit"),
    (TWO_LEAVES.replace("450 GB/s", "0 GB/s"), "leave the link out"),
    (TWO_LEAVES.replace("[h2, h3]]", "[h1, h3]]"), "two nodes"),
    (TWO_LEAVES + "speed: 3\n", "speed is unknown"),
    (TWO_LEAVES.replace("latency: 1 us", "lateness: 1 us"), "did you mean 'latency'"),
    ("gpus: [a, b]\nlinks: 3", "not a list"),
    ("gpus: [a, b]\nlinks: []", "write 1 to"),
    ("gpus: [a, b, c]\nlinks: [{from: a, to: b, bandwidth: 1 GB/s, ports: 0}]", "ports"),
]


@pytest.mark.parametrize(("text", "cure"), BAD)
def test_mistakes_are_named(text, cure):
    with pytest.raises(ValueError, match=cure) as found:
        graph_from_yaml(text)
    assert "\n" not in str(found.value)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_end_in_one_line(data):
    text = list(TWO_LEAVES)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 8))] = data.draw(st.text("[]{}:,-0h1\n s*&!'", max_size=4))
        if not text:
            break
    said = ""
    try:
        graph = graph_from_yaml("".join(text))
        graph.routes(np.array([0]), np.array([graph.gpus - 1]))
    except ValueError as problem:
        said = str(problem)
    assert "\n" not in said


def test_what_is_cut_off_is_named():
    graph = graph_from_yaml("gpus: [a, b, c]\nlinks: [{from: a, to: b, bandwidth: 1 GB/s}]")
    with pytest.raises(ValueError, match="no path from a to c"):
        graph.routes(np.array([0]), np.array([2]))


def test_a_file(tmp_path):
    path = tmp_path / "fabric.yaml"
    path.write_text(TWO_LEAVES)
    assert graph_of(path).gpus == 4


def test_sizes_are_bounded():
    many = ", ".join(f"g{i}" for i in range(600))
    with pytest.raises(ValueError, match="directed links"):
        graph_from_yaml(f"gpus: [{many}]\nswitches: [{many.replace('g', 's')}]\n"
                        f"links: [{{from: [{many}], to: [{many.replace('g', 's')}], bandwidth: 1 GB/s}}]")  # fmt: skip
