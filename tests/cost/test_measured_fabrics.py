"""Collectives of a mebibyte and more against measurements, and constants moved to hardware that nobody measured."""

import importlib
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from shardwise.cost._links import default_links
from shardwise.cost.network import network_of
from shardwise.spec.cluster import Level
from shardwise.spec.load import cluster_of, gpu_of
from truth import truth

ROOT = Path(__file__).resolve().parents[2]
# NVLinks between the GPUs of a DGX-1 V100 (white paper, figure 4): a quad is 0-3, twins sit four apart
CUBE = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 1}
CUBE |= {(a + 4, b + 4): links for (a, b), links in CUBE.items()} | {(a, a + 4): 2 for a in range(4)}


@pytest.fixture(scope="module")
def rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "evidence"))
        module = importlib.import_module("_collective_rows")
        return module, [row for row in module.read(truth("collectives.csv")) if row.bytes >= 2**20]


def mape(module, rows, links):
    return np.mean([abs(error) for _, error in module.errors(links, None, rows)])


def test_all_fabrics_by_the_shipped_constants(rows):
    module, measured = rows
    assert len(measured) > 1300
    assert len({row.fabric for row in measured}) == 15
    assert mape(module, measured, default_links()) < 0.09


@pytest.mark.parametrize(("generation", "fabric", "most"), [(3, "A100 node", 0.12), (2, "V100 node", 0.22)])
def test_a_generation_without_constants_takes_its_neighbours_moved_to_its_clock(rows, generation, fabric, most):
    module, measured = rows
    mine = [row for row in measured if row.fabric == fabric]
    links = default_links()
    kept = {name: link for name, link in links.link.items() if name != f"nvlink{generation}"}
    assert mape(module, mine, msgspec.structs.replace(links, link=kept)) < most
    nearest = links.link[f"nvlink{generation + 1}"]
    as_is = msgspec.structs.replace(links, link={**kept, f"nvlink{generation}": nearest})
    if generation == 3:
        assert mape(module, mine, as_is) > 1.5 * most


def test_constants_moved_to_their_own_gpu_stay():
    link = default_links().link["nvlink4"]
    moved = link.on(gpu_of("h100"))
    assert moved.ring.base_us == pytest.approx(link.ring.base_us)
    slow = link.on(gpu_of("a100-80"))
    assert slow.ring.base_us[0] / link.ring.base_us[0] == pytest.approx(1.98 / 1.41)
    assert slow.ring.rate[-1] == link.ring.rate[-1]
    assert slow.copy_bytes_per_s < link.copy_bytes_per_s


def rings(gpus: int) -> int:
    """Most rings over the first GPUs of the cube mesh, both ways round, each with a link of its own for every hop."""
    edges = {pair: links for pair, links in CUBE.items() if max(pair) < gpus}
    if gpus == 2:
        return edges[0, 1]
    return 2 * most_cycles(edges, gpus)


def most_cycles(edges, gpus):
    best = 0
    for cycle in cycles(edges, gpus):
        rest = dict(edges)
        for pair in cycle:
            rest[pair] -= 1
        left = {pair: links for pair, links in rest.items() if links}
        best = max(best, 1 + most_cycles(left, gpus))
        if best == min(sum(links for pair, links in edges.items() if gpu in pair) for gpu in range(gpus)) // 2:
            break
    return best


def cycles(edges, gpus, path=(0,)):
    if len(path) == gpus:
        if (0, path[-1]) in edges:
            hops = [*pairwise(path), (path[-1], 0)]
            yield [(min(hop), max(hop)) for hop in hops]
        return
    for gpu in range(gpus):
        if gpu not in path and (min(path[-1], gpu), max(path[-1], gpu)) in edges:
            yield from cycles(edges, gpus, (*path, gpu))


def test_the_mesh_of_a_dgx_1_is_the_rings_its_links_can_carry():
    mesh = cluster_of("dgx-v100:8").levels[0].mesh
    assert all(sum(links for pair, links in CUBE.items() if gpu in pair) == 6 for gpu in range(8))
    for gpus in (2, 3, 4, 6, 7, 8):
        assert mesh[gpus - 2] == rings(gpus), gpus
    # the fifth GPU has links to one other only: NCCL passes through it, once on each of the two
    assert rings(5) == 0
    assert mesh[3] == CUBE[0, 4]


def test_a_pair_in_a_mesh_has_a_sixth_of_the_bandwidth():
    network = network_of(cluster_of("dgx-v100:8"))
    assert network.bus_bandwidth("all_reduce", 1e9, 2) == pytest.approx(22.5e9, rel=0.03)
    assert network.bus_bandwidth("all_reduce", 1e9, 8) == pytest.approx(134e9, rel=0.03)


def test_half_a_box_keeps_the_mesh():
    half = cluster_of("2x4xv100")
    assert half.levels[0].degree == 4
    assert network_of(half).bus_bandwidth("all_reduce", 1e9, 4) == pytest.approx(85e9, rel=0.06)


def test_a_wrong_mesh_says_what_to_write():
    with pytest.raises(ValueError, match="rings of 2, 3"):
        Level(name="node", kind="nvlink", degree=4, bandwidth=1e9, latency_s=0.0, mesh=(1, 2))
    with pytest.raises(ValueError, match="the last the most"):
        Level(name="node", kind="nvlink", degree=3, bandwidth=1e9, latency_s=0.0, mesh=(3, 2))


def test_rings_over_many_nodes_take_a_step_for_every_rank(rows):
    module, _ = rows
    measured, links = module.read_rings(), default_links()
    assert len(measured) > 150
    assert mape(module, measured, links) < 0.1
    network = links.link["network"]
    as_in_a_node = msgspec.structs.replace(network, ring=msgspec.structs.replace(network.ring, inside_us=()))
    before = msgspec.structs.replace(links, link={**links.link, "network": as_in_a_node})
    assert mape(module, measured, before) > 0.14
