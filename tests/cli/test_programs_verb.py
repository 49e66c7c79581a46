"""`catalog programs`: every program of the catalog, its band, and an origin for each of its constants."""

import json

import pytest

from shardwise import catalog
from terminal import narrow_terminal, refused, shown  # noqa: F401

pytestmark = pytest.mark.usefixtures("narrow_terminal")


def data_of(capsys, *words):
    return json.loads(shown(capsys, ["catalog", "programs", *words, "--json"]))


def test_every_stack_is_listed_with_its_error(capsys):
    found = data_of(capsys)["programs"]
    assert [stack["name"] for stack in found] == catalog.names("programs")
    for stack in found:
        low, high = stack["error_range"]
        assert low < 0 < high
    text = shown(capsys, ["catalog", "programs"])
    assert all(name in text for name in catalog.names("programs"))
    assert max(map(len, text.splitlines())) <= 80


def test_the_error_is_the_one_that_estimate_prints(capsys):
    asked = ["estimate", "llama-3-8b", "--on", "dgx-h100:64", "--zero", "3", "--stack", "torchtitan", "--json"]
    report = json.loads(shown(capsys, asked))
    found = data_of(capsys, "torchtitan")
    assert found["error_basis"] == report["error_basis"]
    assert found["fitted_runs"] > 0


@pytest.mark.parametrize("name", ["torchtitan", "megatron-bridge", "shardwise"])
def test_each_constant_has_an_origin(name, capsys):
    found = data_of(capsys, name)["settings"]
    assert found
    assert {each["origin"] for each in found} <= {"read", "timed", "fitted", "set", "assumed"}
    assert all(each["reference"] for each in found)
    text = shown(capsys, ["catalog", "programs", name])
    assert max(map(len, text.splitlines())) <= 80
    assert all(each["setting"] in text for each in found)


def test_an_unknown_stack_is_one_line(capsys):
    refused(capsys, ["catalog", "programs", "megatron-cor"], "did you mean 'megatron-core'?")
