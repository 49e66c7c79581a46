"""Hosts: each fabric's share of memory and power, and what is assumed where nobody states it."""

import pytest

from shardwise import catalog, cluster_of, open_question_of, question_of
from shardwise.question.studies.money import drawn_watts
from shardwise.spec.cluster import ASSUMED_HOST_BYTES
from shardwise.spec.dump import to_yaml
from shardwise.spec.hardware import fabric_of
from shardwise.spec.load import cluster_from_yaml


@pytest.mark.parametrize("name", catalog.names("fabrics"))
def test_a_stated_host_has_a_source_and_the_size_of_one(name):
    host = fabric_of(name).host
    if host is not None:
        assert host.source
        assert 32e9 <= host.memory_bytes <= 512e9, "of one GPU"
        assert host.rated_watts == 0 or 400 <= host.rated_watts <= 2000


def test_a_dgx_h100():
    cluster = cluster_of("dgx-h100:64")
    assert cluster.host_bytes_per_gpu == 2e12 / 8
    assert cluster.rated_watts == pytest.approx(8 * 10.2e3)
    assert drawn_watts(cluster) == pytest.approx(0.76 * 8 * 10.2e3)


def test_nobody_states_it():
    cluster = cluster_of("8xmi300x")
    assert cluster.host is None
    assert cluster.host_bytes_per_gpu == ASSUMED_HOST_BYTES
    assert cluster.rated_watts > 8 * cluster.gpu.power_watts


@pytest.mark.parametrize("name", ["dgx-h100:64", "8xgb200", "2x4xa100-40", "8xmi300x"])
def test_survives_a_file(name):
    cluster = cluster_of(name)
    assert cluster_from_yaml(to_yaml(cluster)).host == cluster.host


@pytest.mark.parametrize("text", ["memory: -1 GB", "power: 1 kW", "memory: 8 GB\n  power: -2 W"])
def test_a_bad_host_is_refused(text):
    good = to_yaml(cluster_of("8xmi300x"))
    with pytest.raises(ValueError, match="host"):
        cluster_from_yaml(f"{good}host:\n  {text}\n")


def test_a_plan_stays_inside_the_host():
    """All of the optimizer of 70B on one small host does not fit, on a large one it does."""
    usual = open_question_of("llama-3-70b", on="8xh100").ranked().recommended
    assert usual.policy.offload == "optimizer"
    small = open_question_of("llama-3-70b", on="8xh100", host_memory="256 GiB").ranked()
    assert not small.best


def test_the_flag_is_of_a_node():
    question = question_of("llama-3-8b", on="2x8xa100-40", tp=2, host_memory="1 TiB")
    assert question.case.cluster.host_bytes_per_gpu == 2**40 / 8
