"""Costs against the closed forms of the literature, without torch."""

import pytest

from shardwise.cost.network import network_of
from shardwise.plugins.collectives import collective
from shardwise.plugins.compressors import compressor
from shardwise.plugins.sync import FlatNetwork, ParameterLayout, seconds_of, strategy
from shardwise.plugins.sync._events import mean_event
from shardwise.plugins.topologies import topology
from shardwise.spec.load import cluster_of

D = 25_500_000
M = 4 * D
BYTES = FlatNetwork(latency_s=0.0, bytes_per_s=1.0)
ROUNDS = FlatNetwork(latency_s=1.0, bytes_per_s=1e30)


def sent(found, n: int) -> float:
    return found.cost(D, BYTES, n).sent_bytes


@pytest.mark.parametrize("n", [2, 8, 64])
def test_bytes_of_the_busiest_worker(n):
    part = 2 * (n - 1) / n * M
    top, sign = compressor("top_k", ratio=0.01), compressor("sign")
    assert sent(strategy("psgd"), n) == pytest.approx(part, rel=1e-5)
    assert sent(strategy("psgd", via="sharded"), n) == pytest.approx(part, rel=1e-5)
    assert sent(strategy("psgd", via="server"), n) == (n - 1) * M
    assert sent(strategy("dsgd"), n) == M
    assert sent(strategy("dsgd", topology=topology("ring")), n) == min(2, n - 1) * M
    assert sent(strategy("dsgd", topology=topology("static_exp")), n) == (n.bit_length() - 1) * M
    assert sent(strategy("gradient_tracking", topology=topology("one_peer_exp")), n) == 2 * M
    assert sent(strategy("local_sgd", every=16), n) == pytest.approx(part / 16, rel=1e-5)
    assert sent(strategy("diloco", every=500), n) == pytest.approx(part / 500, rel=1e-5)
    assert sent(strategy("mem_sgd", compressor=top), n) == (n - 1) * 8 * D / 100
    assert sent(strategy("double_squeeze", compressor=sign), n) == pytest.approx(part / 32, rel=0.02)
    every = strategy("gossip_pga", every=6)
    assert sent(every, n) == pytest.approx(5 / 6 * min(2, n - 1) * M + part / 6, rel=1e-5)


def test_memory_of_the_state():
    held = {
        "psgd": 0, "dsgd": 0, "mem_sgd": 1, "gradient_tracking": 2, "exact_diffusion": 1, "diloco": 2, "slowmo": 2,
        "ef21_sgd": 2, "ef21_sgdm": 3, "dmsgd": 1, "local_sgd": 0,
    }  # fmt: skip
    for name, copies in held.items():
        assert strategy(name).cost(D, BYTES, 8).state_bytes == copies * M, name


def test_compression_by_all_gather_loses_beyond_a_number_of_workers():
    """An all-gather of 1 % at 8 bytes each: (n - 1) 0.02 M against 2 M; signs: n - 1 against 64."""
    dense = strategy("psgd")
    for found, limit in ((strategy("mem_sgd", compressor=compressor("top_k", ratio=0.01)), 100),
                         (strategy("mem_sgd", compressor=compressor("sign")), 64)):  # fmt: skip
        assert sent(found, limit // 2) < sent(dense, limit // 2)
        assert sent(found, 2 * limit) > sent(dense, 2 * limit)


@pytest.mark.parametrize(
    ("name", "settings", "known_ms"),
    [
        ("psgd", {}, (457, 517, 530)), ("dsgd", {}, (261, 261, 261)),
        ("dsgd", {"topology": topology("static_exp")}, (783, 1567, 2089)),
        ("dsgd", {"topology": topology("ring")}, (522, 522, 522)), ("local_sgd", {"every": 16}, (29, 32, 33)),
        ("mem_sgd", {"compressor": compressor("top_k", ratio=0.01)}, (37, 330, 1337)),
        ("double_squeeze", {"compressor": compressor("sign")}, (15, 19, 27)),
    ],
)  # fmt: skip
def test_seconds_on_25_gbps_shared_by_eight(name, settings, known_ms):
    """25.5 million parameters, 20 us a message; the table of an independent program."""
    network = FlatNetwork(latency_s=20e-6, bytes_per_s=25e9 / 8 / 8)
    for n, known in zip((8, 64, 256), known_ms, strict=True):
        assert strategy(name, **settings).cost(D, network, n).seconds * 1e3 == pytest.approx(known, rel=0.03)


def test_rounds():
    assert strategy("psgd").cost(D, ROUNDS, 16).seconds == pytest.approx(30.0)
    assert strategy("psgd", via="server").cost(D, ROUNDS, 16).seconds == pytest.approx(30.0)
    assert strategy("psgd", via="tree").cost(D, ROUNDS, 16).seconds <= 2 * 5
    assert strategy("dsgd").cost(D, ROUNDS, 16).seconds == pytest.approx(1.0)
    assert strategy("psgd").cost(D, ROUNDS, 1).seconds == 0.0


def test_a_sharded_server_takes_as_long_as_a_ring():
    for network in (BYTES, ROUNDS):
        ring, sharded = (strategy("psgd", via=via).cost(D, network, 16).seconds for via in ("ring", "sharded"))
        assert sharded == pytest.approx(ring, rel=1e-5)


def test_streaming_lowers_the_peak_not_the_sum():
    whole = strategy("diloco", every=100).cost(D, BYTES, 8)
    parts = strategy("streaming_diloco", every=100, fragments=4).cost(D, BYTES, 8)
    assert parts.sent_bytes == pytest.approx(whole.sent_bytes, rel=1e-5)
    assert parts.peak_s == pytest.approx(whole.peak_s / 4, rel=1e-5)


@pytest.mark.parametrize("via", ["ring", "tree"])
def test_events_say_what_the_collectives_say(via):
    for n in (2, 4, 8):
        found = collective(via).sent("all_reduce", n, n if via == "ring" else 1)
        assert mean_event(64, n, 1, via).sent == pytest.approx([4 * 64 * f for f in found])


def test_the_planner_s_network_prices_every_event():
    network = network_of(cluster_of("dgx-h100:64"))
    for name in ("psgd", "dsgd", "double_squeeze", "median", "fedavg", "hierarchical"):
        cost = strategy(name).cost(D, network, 64)
        assert cost.seconds == pytest.approx(sum(seconds_of(e, network) for e in cost.events) / cost.steps)
        assert 0 < cost.seconds < 1
    inside = strategy("hierarchical", outer=strategy("psgd")).cost(D, network, 64)
    assert {(e.size, e.stride) for e in inside.events} == {(8, 1), (8, 8)}


def test_matrices_matter_to_factored_gradients():
    layout = ParameterLayout.named([("w", (1000, 500)), ("b", (1000,))])
    cost = strategy("power_sgd", rank=2).cost(layout, BYTES, 4)
    assert cost.sent_bytes == pytest.approx(2 * 3 / 4 * 4 * (2 * 1500 + 1000), rel=1e-2)


def test_bad_networks_and_shapes_are_refused():
    with pytest.raises(ValueError, match="network"):
        FlatNetwork(latency_s=-1.0, bytes_per_s=1.0)
    with pytest.raises(ValueError, match="shapes"):
        strategy("psgd").cost(0, BYTES, 4)
    with pytest.raises(ValueError, match="no trainable parameter"):
        ParameterLayout.named([])
