import contextlib
import math
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shardwise import catalog
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.dump import quantity_text, to_yaml
from shardwise.spec.load import cluster_from, cluster_from_yaml, cluster_of, gpu_of
from shardwise.units import bytes_of, count_of, flops_of, hertz_of, rate_of, seconds_of, watts_of

SITE = """
name: site
gpu: h100
gpus: 64
levels:
  - {name: node, kind: nvlink, degree: 8, bandwidth: 450 GB/s, latency: 0.6 us, reduces: yes}
  - {name: leaf, kind: network, degree: 16, bandwidth: 400 Gbps, latency: 2 us, oversubscription: 2, rails: 8}
"""


@pytest.mark.parametrize(
    ("text", "gpu", "gpus", "degrees"),
    [
        ("dgx-h100:1024", "h100", 1024, [8, 32, 4]),
        ("DGX-H100:1k", "h100", 1000, [8, 32, 4]),
        ("dgx-h100", "h100", 256, [8, 32]),
        ("8xh100", "h100", 8, [8]),
        ("8xH100-80GB-SXM", "h100", 8, [8]),
        ("4x8xh100", "h100", 32, [8, 32]),
        ("4x4xa100-80", "a100-80", 16, [4, 20]),
        ("8xrtx4090", "rtx4090", 8, [8]),
        ("16xb300", "b300", 16, [8, 64]),
        ("18x4xgb200", "gb200", 72, [72]),
        ("36x4xgb300", "gb300", 144, [72, 8]),
    ],
)
def test_what_a_user_writes(text, gpu, gpus, degrees):
    cluster = cluster_of(text)
    assert (cluster.gpu.name, cluster.gpus) == (gpu, gpus)
    assert [level.degree for level in cluster.levels] == degrees


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write for example 'dgx-h100:1024'"),
        ("dgx-h10:8", "did you mean 'dgx-h100'"),
        ("8xh10", "gpu 'h10' is unknown; did you mean 'h100'"),
        ("h100:8", "is a GPU, not a fabric; write '8xh100'"),
        ("dgx-h100:", "the number of GPUs is missing; write for example 'dgx-h100:64'"),
        ("dgx-h100:many", "number of GPUs: "),
        ("dgx-h100:2.5", "not a whole number"),
        ("dgx-h100:0", "write 1 or more"),
        ("dgx-h100:1e300T", "absurdly large"),
        ("dgx-h100:20000", "write at most 16384"),
        ("0xh100", "write 1 or more"),
        ("2x9xh100", "nodes hold 1 to 8 GPUs, not 9"),
        ("nowhere/site.yaml", "there is no file 'nowhere/site.yaml'; write the path of a YAML file"),
        ("a\0b.yaml", ""),
    ],
)
def test_bad_text_says_what_to_write(text, message):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        cluster_of(text)
    assert message in str(caught.value)


def test_a_file(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    site = cluster_of(str(path))
    assert (site.name, site.gpus, site.node_size) == ("site", 64, 8)
    assert site.gpu == gpu_of("h100")
    assert site.levels[1] == Level(
        name="leaf", kind="network", degree=16, bandwidth=50e9, latency_s=2e-6, oversubscription=2, rails=8
    )
    assert site.levels[0].reduces
    assert not site.levels[1].reduces


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpus: 64", "gpsu: 64", "gpus is missing; write a whole number from 1 to 100000000, such as 'gpus: 64'"),
        ("gpus: 64", "gpus: 64\ngpu_count: 3", "gpu_count is unknown; did you mean"),
        ("gpus: 64", "gpus: -1", "gpus is '-1'; write a whole number"),
        ("gpus: 64", "gpus: 6.5", "gpus is '6.5'; write a whole number"),
        ("gpus: 64", "gpus: 640", "write at most 128"),
        ("gpus: 64", "gpus: 64\ngpus: 32", "line 5: 'gpus' is given twice"),
        ("gpu: h100", "gpu: h10", "did you mean 'h100'"),
        ("gpu: h100", "gpu: [h100]", "is not a mapping"),
        ("gpu: h100", "gpu: {name: mine}", "gpu: vendor is missing"),
        ("gpu: h100", "gpu:", "gpu: is empty"),
        ("400 Gbps", "400", "levels[1].bandwidth: '400' has no unit; write '400 Gbps'"),
        ("400 Gbps", "400 GiB", "levels[1].bandwidth: unknown unit"),
        ("400 Gbps", "-4 Gbps", "is negative"),
        ("400 Gbps", "0 Gbps", "bandwidth > 0"),
        ("2 us", "2", "levels[1].latency: '2' has no unit"),
        ("rails", "rail", "levels[1].rail is unknown; did you mean 'rails'?"),
        ("reduces: yes", "reduces: maybe", "levels[0].reduces is 'maybe'; write true or false"),
        ("oversubscription: 2", "oversubscription: .nan", "oversubscription is '.nan'; write a number from 0"),
        ("oversubscription: 2", "oversubscription: nan", "oversubscription is 'nan'; write a number from 0"),
        ("oversubscription: 2", "oversubscription: 0.5", "oversubscription >= 1"),
        ("kind: nvlink", "kind: warp", "write nvlink, pcie or network"),
        ("name: site", 'name: "a\\eb"', "write at most 1000 printable characters"),
        ("name: site", 'name: "\\UFFFFFFFF"', "not readable as YAML"),
        ("name: site", "name: &a site\nsource: *a", "line 3: not readable as YAML: aliases"),
        ("levels:", "levels: []\nmore:", "levels has 0 entries; write 1 to 8"),
        ("gpus: 64", "gpus: [", "not readable as YAML"),
        (SITE, "", "is not a mapping"),
        (SITE, "[]", "is not a mapping"),
    ],
)
def test_a_bad_file_says_what_to_write(tmp_path, old, new, message):
    assert old in SITE
    path = tmp_path / "site.yaml"
    path.write_text(SITE.replace(old, new, 1))
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        cluster_of(str(path))
    assert message in str(caught.value)


def test_a_folder_a_large_file_and_bytes_are_refused(tmp_path):
    folder, large, noise = tmp_path / "d.yaml", tmp_path / "l.yml", tmp_path / "n.yaml"
    folder.mkdir()
    large.write_text("name: x\n" * 200_000)
    noise.write_bytes(b"\xff\xfe\x00gpu")
    for path, message in ((folder, "there is no file"), (large, "larger than 1 MiB"), (noise, "not UTF-8")):
        with pytest.raises(ValueError, match=message):
            cluster_of(str(path))


@pytest.mark.parametrize(
    "bomb",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "[" * 5000,
        "- " * 5000,
        "{a: " * 5000,
        "[" + "1," * 400_000,
        "a: '" + "x" * 900_000,
        "? " * 5000,
    ],
)
def test_bombs_are_refused_quickly(bomb):
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"^.{1,300}$"):
        cluster_from_yaml(bomb)
    assert time.perf_counter() - start < 10


def test_a_file_cannot_construct_objects():
    with pytest.raises(ValueError, match="gpu"):
        cluster_from_yaml("gpu: !!python/object/apply:os.getcwd []\ngpus: 8\nlevels: []")


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.text("[]{}:-?&*!|>'\"#%@,. \n\tab01\\"), st.binary().map(lambda b: b.decode("latin-1"))))
def test_any_text_is_a_cluster_or_a_value_error(text):
    for read in (cluster_of, cluster_from_yaml):
        with contextlib.suppress(ValueError):
            assert isinstance(read(text), Cluster)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_in_a_file_are_a_cluster_or_a_value_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(data)
    with contextlib.suppress(ValueError):
        assert isinstance(cluster_of(str(path)), Cluster)


_leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["8", "50 GB/s"]),
)
_value = st.recursive(_leaf, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3))
_KEYS = [
    "name",
    "gpu",
    "gpus",
    "levels",
    "source",
    "kind",
    "degree",
    "bandwidth",
    "latency",
    "peak",
    "nvlink",
]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_file_is_a_cluster_or_a_value_error(data):
    site = yaml.safe_load(SITE)
    target = data.draw(st.sampled_from([site, *site["levels"]]))
    target[data.draw(st.sampled_from(_KEYS))] = data.draw(_value)
    with contextlib.suppress(ValueError):
        cluster = cluster_from_yaml(yaml.safe_dump(site))
        assert all(math.isfinite(level.usable_bandwidth) for level in cluster.levels)
        assert cluster_from_yaml(to_yaml(cluster)) == cluster


@pytest.mark.parametrize("name", catalog.names("gpus"))
def test_an_inline_gpu_round_trips(name):
    cluster = cluster_of("8xh100")
    changed = replace(gpu_of(name), name="mine", power_watts=123.4567890123)
    cluster = replace(cluster, gpu=changed)
    text = to_yaml(cluster)
    assert "power: 123.4567890123 W" in text
    assert cluster_from_yaml(text) == cluster


@given(st.floats(1e-9, 1e25), st.sampled_from([bytes_of, rate_of, seconds_of, flops_of, hertz_of, watts_of]))
def test_text_of_a_quantity_parses_back_exactly(value, parse):
    assert parse(quantity_text(value, parse), "value") == value


@pytest.mark.parametrize(
    ("value", "parse", "text"),
    [
        (50e9, rate_of, "50 GB/s"),
        (6e-7, seconds_of, "0.6 us"),
        (3.35e12, rate_of, "3.35 TB/s"),
        (0.0, seconds_of, "0.0 s"),
    ],
)
def test_text_of_a_quantity_is_for_people(value, parse, text):
    assert quantity_text(value, parse) == text


def test_hertz_and_counts():
    assert hertz_of("1.98 GHz") == 1.98e9
    assert hertz_of("1410 MHz") == 1.41e9
    with pytest.raises(ValueError, match="write '2 GHz'"):
        hertz_of("2")
    with pytest.raises(ValueError, match="absurdly large"):
        count_of("1e300T")


def test_a_cluster_from_numbers():
    cluster = cluster_from("A100-80GB-SXM", 64, 8, 25e9)
    assert [(level.degree, level.bandwidth) for level in cluster.levels] == [(8, 300e9), (8, 25e9)]
    assert cluster.name == "8x8xa100-80"
    assert cluster_from("H100-80GB-SXM", 16, 8).levels[1].bandwidth == 50e9
    assert cluster_from("h100", 4, 8, 50e9).levels == cluster_of("8xh100").levels
    assert cluster_from("h100", 20, 8, 50e9).levels[1].degree == 3
    assert cluster_from("h100", 16, 8, 50e9, node_bandwidth=200e9).levels[0].bandwidth == 200e9
    slow = cluster_from("h100", 16, 8, 50e9, oversubscription=4, network_latency_s=5e-6, name="slow")
    assert (slow.name, slow.levels[1].usable_bandwidth, slow.levels[1].latency_s) == ("slow", 12.5e9, 5e-6)


def test_the_nvlink_domain_of_a_rack_ignores_the_tray():
    assert [level.degree for level in cluster_from("GB200", 256, 4, 50e9).levels] == [72, 4]
    assert [level.degree for level in cluster_from("GB300", 64, 4, 100e9).levels] == [72]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_cluster_from_bad_numbers(bad):
    with pytest.raises(ValueError, match="network_bandwidth is"):
        cluster_from("h100", 16, 8, bad)
    with pytest.raises(ValueError, match="write 1 or more"):
        cluster_from("h100", 16, 0, 50e9)
