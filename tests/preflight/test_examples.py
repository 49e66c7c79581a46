"""The nodes of examples/preflight are those of these tests, one with three faults; run this file to write them."""

from pathlib import Path

import msgspec
import pytest
from made_node import Made, lldp

from shardwise.run.preflight.facts import encoded, read_facts
from shardwise.show.cli import main

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "preflight"


def examples() -> dict[str, Made]:
    sound, faulty = Made(host="node1"), Made(host="node2")
    faulty.files["/sys/class/infiniband/mlx5_3/ports/1/rate"] = "200 Gb/sec (4X HDR)"
    faulty.packages["nccl"] = "2.26.2"
    swapped = {2: 5, 5: 2}
    faulty.commands["lldpctl -f json"] = (0, lldp(lambda i: f"leaf{swapped.get(i, i)}"))
    return {"node1": sound, "node2": faulty}


@pytest.mark.parametrize("name", ["node1", "node2"])
def test_examples_are_as_the_tests_have_them(name):
    assert read_facts(FOLDER / f"{name}.json") == examples()[name].recorded().facts


def test_the_example_shows_its_three_faults(capsys):
    words = ["llama-3-8b", "--on", "dgx-h100:16", "--tp", "8", "--gather", str(FOLDER), "--json"]
    assert main(["preflight", *words]) == 1
    found = msgspec.json.decode(capsys.readouterr().out)
    assert {row["item"] for row in found["items"] if row["verdict"] == "fail"} == {
        "nic-speed", "equal-versions", "rail-alignment",
    }  # fmt: skip
    told = next(row["evidence"] for row in found["items"] if row["item"] == "rail-alignment")
    assert "NIC 5 of node2 on leaf2" in told
    assert "NIC 2 of node2 on leaf5" in told
    assert "node1" not in told


if __name__ == "__main__":
    for name, made in examples().items():
        (FOLDER / f"{name}.json").write_bytes(encoded(made.recorded().facts) + b"\n")
