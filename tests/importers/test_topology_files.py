"""Topologies that tools print -> clusters, and files that are none."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_files import cube_xml, matrix, nccl_xml

from shardwise.programs.importers import nccl_topology, nvidia_smi
from shardwise.programs.importers.topology import cluster_from_topology
from shardwise.show.cli import main
from shardwise.spec.load import cluster_of


def from_xml(text, **more):
    return cluster_from_topology(nccl_topology.parse(text.encode()), "site", **more)


def from_matrix(text, **more):
    return cluster_from_topology(nvidia_smi.parse(text.encode()), "site", **more)


def test_a_dgx_h100_as_nccl_dumps_it_is_the_catalogs():
    cluster, notes = from_xml(nccl_xml(), gpus=64)
    usual = cluster_of("dgx-h100:64")
    assert cluster.gpu == usual.gpu
    assert cluster.levels[0] == usual.levels[0]
    network, leaf = cluster.levels[1], usual.levels[1]
    assert (network.bandwidth, network.rails, network.latency_s) == (leaf.bandwidth, 8, leaf.latency_s)
    assert (network.degree, cluster.gpus) == (8, 64)
    assert any("8 NICs, 3,200 Gbps" in note for note in notes)


def test_one_machine_has_one_level():
    cluster, _ = from_xml(nccl_xml())
    assert (cluster.gpus, len(cluster.levels)) == (8, 1)


@pytest.mark.parametrize(("device", "name"), [("0x2335", "h200"), ("0x20b2", "a100-80"), ("0x2901", "b200")])
def test_the_device_id_names_the_gpu(device, name):
    assert nccl_topology.parse(nccl_xml(device).encode()).gpu == name


def test_an_unknown_device_goes_by_its_capability_and_says_so():
    cluster, notes = from_xml(nccl_xml("0xffff", sm=100))
    assert cluster.gpu.name == "b200"
    assert any("compute capability 10.0" in note for note in notes)
    with pytest.raises(ValueError, match="--gpu h100"):
        from_xml(nccl_xml("0xffff", sm=61))
    assert from_xml(nccl_xml("0xffff", sm=61), gpu="h200")[0].gpu.name == "h200"


def test_a_gpu_without_its_nvlinks_is_named_and_the_node_falls_to_pcie():
    cluster, notes = from_xml(nccl_xml(lame=3), gpus=16)
    assert cluster.levels[0].kind == "pcie"
    assert cluster.levels[0].bandwidth == 64e9
    assert any("GPU 3 (0000:43:00.0) has 0" in note for note in notes)


def test_a_gpu_in_a_narrower_slot_sets_the_pace_and_is_named():
    whole = nccl_xml(lame=3)
    before, _, after = whole.partition('class="0x030200"')
    narrow = before + 'class="0x030200"' + after.replace('link_width="16"', 'link_width="8"', 1)
    cluster, notes = from_xml(narrow, gpus=16)
    assert cluster.levels[0].bandwidth == 32e9
    assert any("GPU 0" in note and "32 of 64 GB/s" in note for note in notes), notes


def test_rails_and_card_speed():
    cluster, _ = from_xml(nccl_xml(rails=True, speed=200_000), gpus=16)
    assert (cluster.levels[1].rails, cluster.levels[1].bandwidth) == (4, 25e9)
    assert from_xml(nccl_xml(), gpus=16, nic=12.5e9)[0].levels[1].bandwidth == 12.5e9


def test_a_cube_mesh_keeps_its_rings():
    cluster, _ = from_xml(cube_xml())
    node, usual = cluster.levels[0], cluster_of("dgx-v100:8").levels[0]
    assert (node.bandwidth, node.mesh, node.kind) == (usual.bandwidth, usual.mesh, "nvlink")


def test_the_matrix_of_nvidia_smi():
    cluster, notes = from_matrix(matrix(), gpus=16)
    assert cluster.levels[0].bandwidth == 450e9
    assert cluster.levels[1].rails == 8
    assert any("18 links" in note for note in notes)
    assert any("2 NICs are next to no GPU" in note for note in notes)
    assert from_matrix(matrix("NV12"))[0].gpu.name == "a100-80"
    assert from_matrix(matrix(), gpu="h200", gpus=16, nic=25e9)[0].levels[1].bandwidth == 25e9


def test_a_matrix_without_nvlink_is_a_pcie_box():
    with pytest.raises(ValueError, match="--gpu h100"):
        from_matrix(matrix("SYS"))
    assert from_matrix(matrix("SYS"), gpu="h100-pcie")[0].levels[0].kind == "pcie"


def test_bridges_between_pairs_do_not_join_the_node():
    text = "\tGPU0\tGPU1\tGPU2\tGPU3\n"
    for i in range(4):
        text += (
            "\t".join([f"GPU{i}", *(" X " if i == j else "NV12" if i // 2 == j // 2 else "SYS" for j in range(4))])
            + "\n"
        )
    cluster, notes = from_matrix(text, gpu="a100-80-pcie")
    assert cluster.levels[0].kind == "pcie"
    assert any("do not join all" in note for note in notes)


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><system version="1">&b;</system>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "document type"), ('<!DOCTYPE system SYSTEM "file:///x"><system/>', "document type"),
        ("<system><cpu>", "not readable as XML"), ("<html/>", "begins with <system>"), ("<system/>", "no GPU"),
        ("<system>" + "<pci>" * 100 + "</pci>" * 100 + "</system>", "64 levels"),
        ("<system>" + "<pci/>" * 30_000 + "</system>", "20,000 elements"),
    ],
)  # fmt: skip
def test_xml_that_is_no_topology(text, words):
    with pytest.raises(ValueError, match=words):
        nccl_topology.parse(text.encode())


def test_sizes_are_bounded():
    with pytest.raises(ValueError, match="8 MiB"):
        nccl_topology.parse(b"<system>" + b" " * 2**23)
    with pytest.raises(ValueError, match="1 MiB"):
        nvidia_smi.parse(b"GPU0 " * 2**18)


@pytest.mark.parametrize("text", ["", "hello", "GPU0\tGPU1\n", "\tGPU0\tGPU1\nGPU0\t X \n"])
def test_text_that_is_no_matrix(text):
    with pytest.raises(ValueError, match="keep"):
        nvidia_smi.parse(text.encode())


def test_the_verb_prints_a_file_every_verb_reads(tmp_path, capsys):
    source, site = tmp_path / "node.xml", tmp_path / "site.yaml"
    source.write_text(nccl_xml(), encoding="utf-8")
    assert main(["catalog", "clusters", "--from", str(source), "--gpus", "64", "--yaml"]) == 0
    site.write_text(capsys.readouterr().out, encoding="utf-8")
    assert cluster_of(str(site)).levels == from_xml(nccl_xml(), gpus=64)[0].levels
    assert main(["catalog", "clusters", str(source)]) == 2
    assert "catalog clusters --from FILE --yaml" in capsys.readouterr().err
    assert main(["catalog", "clusters", "dgx-h100", "--from", str(source)]) == 2
    assert main(["catalog", "clusters", "--gpus", "8"]) == 2
    assert main(["catalog", "clusters", "--from", str(tmp_path / "none.xml")]) == 2


SAMPLES = {nccl_topology.parse: nccl_xml().encode(), nvidia_smi.parse: matrix().encode()}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(SAMPLES)), st.integers(0, 6000), st.binary(max_size=12), st.integers(0, 40))
def test_a_damaged_file_is_read_or_refused(parse, at, junk, cut):
    sample = SAMPLES[parse]
    damaged = sample[:at] + junk + sample[at + cut :]
    with suppress(ValueError):
        assert cluster_from_topology(parse(damaged), "site", gpus=16)[0].gpus == 16
