"""Every verb that says a policy is too large says which ones near it are not; the host's memory bounds offload."""

import json

import pytest

from shardwise.show.cli import main
from terminal import narrow_terminal, shown  # noqa: F401

TITLE = "that fit in 77.3 GiB, and the cost of each"


def answer(capsys, words, code=0):
    return json.loads(shown(capsys, [*words, "--json"], code))


@pytest.mark.usefixtures("narrow_terminal")
@pytest.mark.parametrize(
    ("words", "near", "code"),
    [
        (["compare", "llama-3-70b", "--on", "2x8xh100", "--policy", "zero=0", "--policy", "tp=8,zero=3"],
         "nearest to case 1", 1),
        (["size", "--max", "sequence", "llama-3-8b", "--on", "8xh100", "--fix", "zero=0,tp=4,pp=1"],
         ": nearest", 0),
        (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "seq=2048,8192", "--policy", "zero=1", "--jobs", "1"],
         "at 8,192: nearest", 0),
        (["size", "llama-3-70b", "--on", "dgx-h100:8", "--fix", "tp=8", "--fix", "zero=0", "--fix", "offload=none"],
         "on dgx-h100:8: nearest", 1),
        (["fabric", "llama-3-70b", "--on", "2x8xh100", "--zero", "0"], "nearest", 1),
        (["search", "stages", "llama-3-70b", "--on", "8xh100", "--pp", "8"], "nearest", 1),
    ],
    ids=["compare", "max", "sweep", "size", "fabric", "stages"],
)  # fmt: skip
def test_out_of_memory_names_what_fits(words, near, code, capsys):
    text = " ".join(shown(capsys, words, code).split())
    assert f"{near} {TITLE}" in text


def test_what_fits_is_in_the_data(capsys):
    found = answer(capsys, ["compare", "llama-3-8b", "--on", "8xh100", "--policy", "zero=0", "--policy", "zero=3"])
    full, fine = found["cases"]
    assert (full["fits"], fine["fits"], fine["that_fit"]) == (False, True, [])
    assert full["that_fit"][0]["peak_bytes"] < 80e9
    assert all(each["slower"] == pytest.approx(each["step_s"] / full["step_s"] - 1) for each in full["that_fit"])


def test_the_host_bounds_what_compare_takes(capsys):
    words = ["compare", "llama-3-8b", "--on", "8xh100", "--policy", "zero=3,offload=optimizer"]
    (free,) = answer(capsys, words)["cases"]
    assert free["fits"]
    (bounded,) = answer(capsys, [*words, "--host-memory", "1 GiB"], 1)["cases"]
    assert not bounded["fits"]
    assert "host" in bounded["verdict"]
    assert "--host-memory" in bounded["verdict"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["size", "llama-3-8b", "--on", "8xh100", "--tokens", "1B", "--fix", "offload=optimizer"], 1),
        (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "seq=4096,8192", "--fix", "offload=optimizer", "--jobs",
          "1"], 1),
        (["size", "--max", "batch", "llama-3-8b", "--on", "8xh100", "--fix", "offload=optimizer"], 1),
    ],
    ids=["size", "sweep", "max"],
)  # fmt: skip
def test_the_host_bounds_what_is_searched(words, code, capsys):
    assert main([*words, "--json"]) == 0
    capsys.readouterr()
    assert main([*words, "--host-memory", "0 GiB", "--json"]) == code
