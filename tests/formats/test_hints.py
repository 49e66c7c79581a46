"""What schedulers are told: hosts that hold whole groups lie together, as far as a level of the fabric reaches."""

import json

import pytest
import yaml

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.programs.formats import Launch
from shardwise.programs.formats._hints import kubernetes, ray, segment_lines, together
from shardwise.programs.formats._scripts import network_environment
from shardwise.show.cli import main


def launch_on(on, **policy) -> Launch:
    case = case_of(model_of("llama-3-70b"), cluster_of(on), Job(seq=8192, global_batch=1024), stack_of("megatron-core"))
    return Launch(case, Policy(**policy))


@pytest.mark.parametrize(
    ("on", "policy", "found"),
    [
        ("8xh100", {"dp": 8}, []),
        ("dgx-h100:64", {"tp": 8, "pp": 4, "dp": 2}, [(8, "leaf")]),
        ("dgx-h100:1024", {"tp": 4, "pp": 4, "dp": 64}, [(32, "leaf"), (128, "spine")]),
        ("dgx-h100:1024", {"tp": 8, "pp": 8, "dp": 16, "order": "tp-pp-cp-dp"}, [(8, "leaf"), (128, "spine")]),
        ("dgx-h100:1024", {"dp": 1024}, [(128, "spine")]),
        ("gb200-nvl72:144", {"tp": 8, "dp": 18}, [(2, "rack"), (36, "leaf")]),
    ],
)
def test_hosts_that_belong_together(on, policy, found):
    assert [(each.hosts, each.level) for each in together(launch_on(on, **policy))] == found


def test_what_kueue_is_asked_for():
    launch = launch_on("dgx-h100:1024", tp=4, pp=4, dp=64)
    job, service = yaml.safe_load_all(kubernetes(launch, "megatron"))
    spec = job["spec"]
    assert spec["completions"] == spec["parallelism"] == 128
    notes = spec["template"]["metadata"]["annotations"]
    assert notes["kueue.x-k8s.io/podset-slice-size"] == "32"
    assert notes["kueue.x-k8s.io/podset-slice-required-topology"].endswith("LEAF")
    assert notes["kueue.x-k8s.io/podset-required-topology"].endswith("SPINE")
    pod = spec["template"]["spec"]
    container, volume = pod["containers"][0], pod["volumes"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container["workingDir"] == container["volumeMounts"][0]["mountPath"]
    assert container["volumeMounts"][0]["name"] == volume["name"]
    assert volume["configMap"]["name"] == job["metadata"]["name"]
    assert pod["subdomain"] == service["metadata"]["name"] == service["spec"]["selector"]["job-name"]
    assert spec["completions"] % int(notes["kueue.x-k8s.io/podset-slice-size"]) == 0


def test_a_bundle_for_every_host():
    found = json.loads(ray(launch_on("dgx-h100:64", tp=8, dp=8)))
    assert found == {"bundles": [{"GPU": 8}] * 8, "strategy": "STRICT_SPREAD"}
    assert json.loads(ray(launch_on("8xh100", dp=8)))["strategy"] == "STRICT_PACK"


def test_segments_are_comments():
    (line,) = segment_lines(launch_on("dgx-h100:64", tp=8, pp=4, dp=2))
    assert line.startswith("# 8 consecutive hosts (tp x dp x pp) belong into one leaf; ")
    assert line.endswith("#SBATCH --segment=8")


@pytest.mark.parametrize(("on", "set_"), [("8xh100", True), ("8xa100-80", False)])
def test_switches_that_add_are_switched_on(on, set_):
    assert ("NCCL_NVLS_ENABLE" in network_environment(cluster_of(on))) == set_


def test_the_names_of_a_site_are_exported_and_stand_in_the_rank_map(tmp_path, capsys):
    words = ["export", "llama-3-8b", "--on", "dgx-h100:16", "--tp", "2", "--global-batch", "64", "--to", "megatron"]
    cards = "mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"
    assert main([*words, "--out", str(tmp_path / "bare")]) == 0
    assert main([*words, "--interface", "bond0", "--hca", cards, "--out", str(tmp_path / "named")]) == 0
    bare, named = ((tmp_path / name / "train.sh").read_text() for name in ("bare", "named"))
    assert "# yours: NCCL_SOCKET_IFNAME" in bare
    assert "NCCL_IB_HCA=" not in bare
    assert f"export NCCL_IB_HCA='={cards}'" in named or f"export NCCL_IB_HCA=={cards}" in named
    assert "export NCCL_SOCKET_IFNAME=bond0" in named
    assert "# yours" not in named
    rows = (tmp_path / "named" / "ranks.csv").read_text().splitlines()
    assert [row.split(",")[3] for row in rows[1:9]] == cards.split(",")
    capsys.readouterr()
    for bad in (["--hca", "mlx5_0,,mlx5_1"], ["--hca", "a b"], ["--interface", "eth0;reboot"]):
        assert main([*words, *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
