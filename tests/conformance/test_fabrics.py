"""Every file of catalog/fabrics meets the contract of its kind."""

import re
from math import prod

import pytest

from shardwise import catalog
from shardwise.spec.dump import to_yaml
from shardwise.spec.hardware import fabric_of
from shardwise.spec.load import cluster_from_yaml, cluster_of, gpu_of

FABRICS = catalog.names("fabrics")


@pytest.mark.parametrize("name", FABRICS)
def test_a_fabric_loads_and_states_its_source(name):
    fabric = fabric_of(name)
    assert fabric.name == name
    assert gpu_of(fabric.gpu).name == fabric.gpu
    assert len(fabric.source) > 10
    assert len(fabric.description) > 20
    assert re.fullmatch(r"20\d\d-\d\d", fabric.date)


@pytest.mark.parametrize("name", FABRICS)
def test_the_inner_level_is_the_gpus_own_link(name):
    fabric = fabric_of(name)
    gpu, inner = gpu_of(fabric.gpu), fabric.levels[0]
    expected = ("nvlink", gpu.nvlink.bandwidth) if gpu.nvlink else ("pcie", gpu.pcie_bandwidth)
    assert (inner.kind, inner.bandwidth) == expected


@pytest.mark.parametrize("name", FABRICS)
def test_outer_levels_are_networks_and_slower(name):
    inner, *outer = fabric_of(name).levels
    assert outer
    for below, level in zip([inner, *outer], outer, strict=False):
        assert level.kind == "network"
        assert level.usable_bandwidth <= below.usable_bandwidth
        assert level.latency_s >= below.latency_s
        assert 1e-7 < level.latency_s < 1e-4
    assert len({level.name for level in (inner, *outer)}) == 1 + len(outer)


@pytest.mark.parametrize("name", FABRICS)
def test_in_switch_reduction_only_where_the_hardware_has_it(name):
    fabric = fabric_of(name)
    link = gpu_of(fabric.gpu).nvlink
    hopper_or_later = link is not None and link.generation >= 4 and gpu_of(fabric.gpu).vendor == "NVIDIA"
    # four GPUs that are wired to each other have no switch between them
    assert fabric.levels[0].reduces == (hopper_or_later and not fabric.levels[0].mesh)


@pytest.mark.parametrize("name", FABRICS)
def test_clusters_of_every_size_and_their_files(name):
    degrees = [level.degree for level in fabric_of(name).levels]
    sizes = {1, 2, 8, *(prod(degrees[: i + 1]) for i in range(len(degrees)))}
    for gpus in sizes:
        cluster = cluster_of(f"{name}:{gpus}")
        assert cluster.gpus == gpus
        assert prod(level.degree for level in cluster.levels[:-1]) < gpus or len(cluster.levels) == 1
        assert cluster_from_yaml(to_yaml(cluster)) == cluster
    with pytest.raises(ValueError, match="write at most"):
        cluster_of(f"{name}:{prod(degrees) + 1}")


@pytest.mark.parametrize("name", FABRICS)
def test_a_bare_name_is_its_first_two_levels(name):
    levels = fabric_of(name).levels
    assert cluster_of(name).gpus == levels[0].degree * levels[1].degree


def test_superpod_of_1024_is_full_bisection():
    pod = cluster_of("dgx-h100:1024")
    assert [level.degree for level in pod.levels] == [8, 32, 4]
    assert pod.node_size * pod.levels[0].bandwidth == 3.6e12
    assert [level.usable_bandwidth for level in pod.levels[1:]] == [50e9, 50e9]
    assert pod.gpus * pod.levels[2].usable_bandwidth == 51.2e12
    assert pod.levels[1].rails == 8
    assert cluster_of("dgx-h100:16384").gpus == 16384


def test_cloud_and_ethernet_rates_are_per_gpu():
    assert cluster_of("aws-p5:16").levels[1].bandwidth == 3200e9 / 8 / 8
    assert cluster_of("aws-p4d:16").levels[1].bandwidth == 400e9 / 8 / 8
    assert cluster_of("pcie-rtx4090:16").levels[1].bandwidth == 100e9 / 8 / 8
    assert cluster_of("hgx-h100-roce:24576").levels[-1].usable_bandwidth == pytest.approx(50e9 / 7)
