"""`place`: nodes and their order from a topology, files for schedulers, one line where something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise.show.cli import main

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "importers"))
from site_files import FORMS

POLICY = ["llama-3-8b", "--on", "dgx-h100:64", "--tp", "8", "--pp", "2", "--global-batch", "64", "--seq", "4096"]
QUICK = ["--budget", "300"]


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text(FORMS["topology.conf"])
    return path


def ran(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_nodes_in_the_order_of_the_ranks(capsys, topology):
    code, out, err = ran(capsys, "place", *POLICY, *QUICK, "--topology", topology, "--free", "n[00-03,06-15]", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert len(found["nodes"]) == 8
    assert found["files"]["hostfile"].split() == found["nodes"]
    assert found["step_s"] <= found["listed_step_s"]
    assert found["levels"] == {"leaf": 4, "spine": 1}
    assert found["nodes_free"] == 14
    assert found["tier"] == "flow level"
    assert found["error_range"]


def test_the_page_names_hosts_and_what_was_tried(capsys, topology):
    code, out, _ = ran(capsys, "place", *POLICY, *QUICK, "--topology", topology)
    assert code == 0
    for word in ("as listed", "packed", "in segments", "searched", "hosts", "n[0", "--switches="):
        assert word in out


def test_files_for_schedulers(capsys, topology, tmp_path):
    folder = tmp_path / "out"
    words = ["place", *POLICY, *QUICK, "--topology", topology, "--out", folder]
    assert ran(capsys, *words)[0] == 0
    nodes = (folder / "hostfile").read_text().split()
    assert sorted(path.name for path in folder.iterdir()) == [
        "hostfile", "hostfile.slots", "kueue.yaml", "place.sbatch", "ray.json", "volcano.yaml",
    ]  # fmt: skip
    script = (folder / "place.sbatch").read_text()
    assert "#SBATCH --nodes=8\n#SBATCH --nodelist=n[" in script
    assert subprocess.run(["bash", "-n", str(folder / "place.sbatch")]).returncode == 0
    ray = json.loads((folder / "ray.json").read_text())
    assert [next(iter(each.values())) for each in ray["bundle_label_selector"]] == nodes
    assert ray["bundles"] == [{"GPU": 8}] * 8
    import yaml

    objects = list(yaml.safe_load_all((folder / "volcano.yaml").read_text()))
    members = [each["selector"]["exactMatch"]["name"] for one in objects for each in one["spec"]["members"]]
    assert sorted(members) == sorted(nodes)
    notes = yaml.safe_load((folder / "kueue.yaml").read_text())["metadata"]["annotations"]
    assert notes["kueue.x-k8s.io/podset-preferred-topology"] == "shardwise.dev/spine"
    code, _, err = ran(capsys, *words)
    assert code == 2
    assert "is there already; write --overwrite" in err
    assert ran(capsys, *words, "--overwrite")[0] == 0


def test_a_plan_file_states_model_and_cluster(capsys, topology, tmp_path):
    assert main(["estimate", *POLICY, "--json"]) == 0
    (tmp_path / "plan.json").write_text(capsys.readouterr().out)
    code, out, err = ran(capsys, "place", tmp_path / "plan.json", *QUICK, "--topology", topology, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["policy"]["pp"] == 2


@pytest.mark.parametrize(("words", "told"), [
    (["--free", "n[00-03]"], "free: 4 nodes, but the policy's 64 GPUs need 8 of 8"),
    (["--free", "m1"], "free: 'm1' is not in the topology"),
    (["--free", "n[00-"], "free: 'n[00-' has brackets that do not match"),
    (["--budget", "0"], "budget: 0 is out of range"),
])  # fmt: skip
def test_bad_input_is_one_line(capsys, topology, words, told):
    code, out, err = ran(capsys, "place", *POLICY, "--topology", topology, *words)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_policy_that_cannot_run_gets_the_nearest_that_can(capsys, topology):
    code, out, _ = ran(
        capsys, "place", "llama-3-8b", "--on", "dgx-h100:64", "--tp", "3", "--topology", topology, "--json"
    )
    assert code == 1
    assert json.loads(out)["legal"] is False
