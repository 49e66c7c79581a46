"""`collective`: the chapter's worked problems on communication, answered live; and what fitted constants add."""

import json

import pytest

from terminal import narrow_terminal, refused, shown  # noqa: F401

pytestmark = pytest.mark.usefixtures("narrow_terminal")
ARRAY = "bf16[1024,16384]"
BYTES = 2 * 1024 * 16384


def found(capsys, *words):
    return json.loads(shown(capsys, ["calc", "collective", *words, "--json"]))


def test_a_gather_of_33_mb_on_a_node_takes_65_us_not_9(capsys):
    answer = found(capsys, "all_gather", ARRAY, "--on", "8xh100")
    assert answer["bytes"] == BYTES
    assert answer["law_s"] == pytest.approx(BYTES * 7 / (8 * 450e9))
    assert round(answer["law_s"] * 1e6) == 65
    assert answer["seconds"] > answer["law_s"]
    assert not any("65 us" in note for note in answer["notes"])
    told = found(capsys, "all_gather", ARRAY, "--on", "8xh100", "--explain")["notes"]
    assert any("65 us" in note for note in told)
    assert "65.2 us" in shown(capsys, ["calc", "collective", "all_gather", ARRAY, "--on", "8xh100"])


def test_a_reduction_in_a_node_passes_n_buffers_in_and_out(capsys):
    answer = found(capsys, "all_reduce", "1 MB", "--on", "8xh100")
    (node,) = answer["levels"]
    assert (node["least_in"], node["least_out"]) == (8e6, 8e6)
    assert answer["law_in_network_s"] == pytest.approx(1e6 / 450e9)
    assert answer["law_s"] == pytest.approx(2e6 * 7 / 8 / 450e9)


def test_a_gather_in_a_unit_of_m_nodes_of_n(capsys):
    answer = found(capsys, "all_gather", "1 MB", "--on", "dgx-h100:256")
    node, top = answer["levels"]
    assert (node["least_in"], node["least_out"]) == pytest.approx((1e6, 8e6))
    assert (top["least_in"], top["least_out"]) == pytest.approx((1e6, 31e6))
    scattered = found(capsys, "reduce_scatter", "1 MB", "--on", "dgx-h100:256")["levels"]
    assert (scattered[1]["least_in"], scattered[1]["least_out"]) == pytest.approx((31e6, 1e6))
    assert answer["law_level"] == "leaf"
    assert answer["law_s"] == pytest.approx(1e6 * 31 / 32 / (8 * 50e9))


def test_a_reduction_over_an_array_cut_inside_the_node_is_as_much_faster(capsys):
    whole = found(capsys, "all_reduce", ARRAY, "--on", "8xh100")
    cut = found(capsys, "all_reduce", ARRAY, "--on", "8xh100", "--inner", "4")
    assert cut["law_in_network_s"] == pytest.approx(whole["law_in_network_s"] / 4)
    assert cut["levels"][0]["least_in"] == pytest.approx(whole["levels"][0]["least_in"] / 4)


def test_the_spine_level_reduction_behind_256_ways(capsys):
    """2 D F / 6.4e12 in the chapter, whose spine switches have half of their bandwidth: 12.8 TB/s."""
    answer = found(capsys, "all_reduce", ARRAY, "--on", "dgx-h100:1024", "--inner", "256")
    assert answer["law_level"] == "spine"
    assert answer["law_in_network_s"] == pytest.approx(BYTES / 12.8e12)


def test_an_all_to_all_inside_and_across_nodes(capsys):
    inside = found(capsys, "all_to_all", "1 GB", "--on", "8xh100")
    assert inside["law_s"] == pytest.approx(1e9 * 7 / (64 * 450e9))
    across = found(capsys, "all_to_all", "1 GB", "--on", "dgx-h100:64")
    assert across["law_s"] == pytest.approx(1e9 * 7 / (64 * 400e9))
    assert across["law_level"] == "leaf"


def test_switches_that_add_are_an_algorithm_of_their_own(capsys):
    asked = ["all_reduce", "1 GB", "--on", "dgx-h100:64"]
    plain, sharp = found(capsys, *asked, "--no-nvls"), found(capsys, *asked, "--sharp")
    names = [each["algorithm"] for each in plain["algorithms"]]
    assert not {"nvls", "nvls_tree", "sharp"} & set(names)
    assert {"nvls", "sharp"} <= {each["algorithm"] for each in sharp["algorithms"]}
    assert sharp["seconds"] < plain["seconds"]
    taken = next(each for each in plain["algorithms"] if each["algorithm"] == plain["taken"])
    assert taken["seconds"] == min(each["seconds"] for each in plain["algorithms"] if each["automatic"])


def test_a_ring_passes_what_every_gpu_sends(capsys):
    (node,) = found(capsys, "all_gather", ARRAY, "--on", "8xh100")["levels"]
    assert node["gpu_sends"] == pytest.approx(BYTES * 7 / 8)
    assert node["passes"] == pytest.approx(7 * BYTES)


@pytest.mark.parametrize(("words", "cure"), [
    (["all_gathr", ARRAY, "--on", "8xh100"], "did you mean 'all_gather'?"),
    (["all_gather", "bf17[8,8]", "--on", "8xh100"], "did you mean 'bf16'?"),
    (["all_gather", "bf16[8,0]", "--on", "8xh100"], "bf16[1024,16384]"),
    (["all_gather", "33.5", "--on", "8xh100"], "33.5"),
    (["all_gather", ARRAY, "--on", "8xh100", "--inner", "3"], "divisor"),
    (["all_gather", ARRAY, "--on", "8xh100", "--inner", "8"], "one rank"),
])  # fmt: skip
def test_bad_input(words, cure, capsys):
    refused(capsys, ["calc", "collective", *words], cure)
