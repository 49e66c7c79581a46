"""`export` and `check`: what is written, what it costs, what is refused, and what is said of a user's files."""

import csv
import json

import pytest

from shardwise.show.cli import main

POLICY = ["llama-3-70b", "--on", "dgx-h100:64", "--tp", "8", "--pp", "4", "--global-batch", "128"]


def ran(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def exported(capsys, folder, *words):
    code, out, err = ran(capsys, "export", *words, "--out", folder, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_export_writes_what_is_launched(capsys, tmp_path):
    found = exported(capsys, tmp_path / "run", *POLICY, "--overlap-pp", "--to", "megatron")
    assert sorted(found["files"]) == [
        "groups.json", "job.sbatch", "kubernetes.yaml", "ranks.csv", "ray.json", "train.sh",
    ]  # fmt: skip
    script = (tmp_path / "run" / "train.sh").read_text()
    assert "--tensor-model-parallel-size 8" in script
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in script
    assert "export NCCL_PXN_DISABLE=0" in script, "rails joined by NVLink"
    sbatch = (tmp_path / "run" / "job.sbatch").read_text()
    assert "#SBATCH --nodes=8" in sbatch
    assert "#SBATCH --gpus-per-node=8" in sbatch
    (gap,) = found["without"]
    assert gap["field"] == "overlap_pp"
    assert gap["step_change"] > 0
    assert f"step {gap['step_change']:+.1%}" in script


def test_the_rank_map_has_every_rank_in_its_groups(capsys, tmp_path):
    exported(capsys, tmp_path, *POLICY, "--to", "megatron")
    rows = list(csv.DictReader((tmp_path / "ranks.csv").read_text().splitlines()))
    groups = json.loads((tmp_path / "groups.json").read_text())["groups"]
    assert [int(row["rank"]) for row in rows] == list(range(64))
    assert {(row["node"], row["gpu"]) for row in rows} == {(str(r // 8), str(r % 8)) for r in range(64)}
    assert groups["tp"][0] == list(range(8))
    assert groups["pp"][0] == [0, 16, 32, 48]
    assert groups["dp"][0] == [0, 8]
    for row in rows:
        for axis, found in groups.items():
            assert found[int(row[f"{axis}_group"])][int(row[f"{axis}_rank"])] == int(row["rank"])


def test_nothing_is_overwritten_unless_told(capsys, tmp_path):
    exported(capsys, tmp_path, *POLICY, "--to", "megatron")
    (tmp_path / "train.sh").write_text("mine")
    code, _, err = ran(capsys, "export", *POLICY, "--to", "megatron", "--out", tmp_path)
    assert code == 2
    assert "is there already; write --overwrite" in err
    assert (tmp_path / "train.sh").read_text() == "mine"
    exported(capsys, tmp_path, *POLICY, "--to", "megatron", "--overwrite")
    assert (tmp_path / "train.sh").read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "megatrn"], "did you mean 'megatron'?"),
        (["--to", "torchtitan"], "zero: 1, but optimizer states alone cannot be shared out"),
        (["--to", "megatron", "--version", "3"], "leave --version away"),
        (["--to", "torchtitan", "--version", "0.9"], "version: '0.9' of torchtitan is unknown"),
        (["--to", "megatron", "--layers", "20,20,20"], "write 4 numbers"),
        (["--to", "megatron", "--layers", "a"], "write whole numbers joined by commas"),
        (["--to", "deepspeed"], "tp: 8, but DeepSpeed states 1 only"),
        (["--to", "megatron", "--precision", "autocast"], "precision: autocast"),
    ],
)
def test_what_cannot_be_written_is_one_line(capsys, words, said):
    code, out, err = ran(capsys, "export", *POLICY, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_uneven_stages_become_a_layout(capsys, tmp_path):
    exported(capsys, tmp_path, *POLICY, "--to", "megatron", "--layers", "19,21,21,19")
    script = (tmp_path / "train.sh").read_text()
    layout = "|".join(["E" + "t" * 19, "t" * 21, "t" * 21, "t" * 19 + "L"])
    assert f"--pipeline-model-parallel-layout '{layout}'" in script
    code, out, _ = ran(capsys, "check", tmp_path / "train.sh", "--json")
    assert code == 0
    assert json.loads(out)["layers"] == [19, 21, 21, 19]


def test_stages_and_plans_can_be_exported(capsys, tmp_path):
    for verb in (["search", "stages", *POLICY], ["estimate", *POLICY]):
        code, out, _ = ran(capsys, *verb, "--json")
        assert code == 0
        (tmp_path / "plan.json").write_text(out)
        exported(capsys, tmp_path / verb[0], tmp_path / "plan.json", "--to", "megatron")
        assert "--tensor-model-parallel-size 8" in (tmp_path / verb[0] / "train.sh").read_text()
    best = json.loads((tmp_path / "plan.json").read_text())
    assert best["policy"]["tp"] == 8


def test_an_illegal_policy_is_not_exported(capsys):
    words = ["llama-3-70b", "--on", "dgx-h100:64", "--tp", "3", "--global-batch", "128", "--to", "megatron"]
    code, out, _ = ran(capsys, "export", *words)
    assert code == 1
    assert "cannot run" in out


def test_check_says_what_it_read_and_what_is_faster(capsys, tmp_path):
    exported(capsys, tmp_path, *POLICY, "--to", "megatron")
    code, out, _ = ran(
        capsys, "check", tmp_path / "train.sh", "--model", "llama-3-70b", "--on", "dgx-h100:64", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert (found["target"], found["legal"], found["fits"]) == ("megatron", True, True)
    assert found["seq_tokens"] == 8192
    assert "tokenizer_type 'NullTokenizer'" in found["without_influence"]
    changes = [change["step_change"] for change in found["improvements"]]
    assert 1 <= len(changes) <= 3
    assert changes == sorted(changes)
    assert changes[0] < 0
    assert found["best"]["step_change"] <= changes[0] + 0.02, "the one to take is among the equally fast ones"


@pytest.mark.parametrize("version", ["0.2.2", "0.3.0", "main"])
def test_check_knows_which_form_it_read(capsys, tmp_path, version):
    words = ["llama-3-8b", "--on", "dgx-h100:32", "--zero", "3", "--tp", "2", "--global-batch", "256"]
    files = exported(capsys, tmp_path, *words, "--to", "torchtitan", "--version", version)["files"]
    written = [file for name, file in files.items() if name.startswith("train")]
    _, out, _ = ran(capsys, "check", *written, "--model", "llama-3-8b", "--on", "dgx-h100:32", "--json")
    found = json.loads(out)
    assert found["policy"]["loss"] == ("plain" if version == "0.2.2" else "chunked")
    assert found["improvements"], "without its own form nothing could be stated"


def test_check_reads_the_model_out_of_the_file(capsys, tmp_path):
    exported(capsys, tmp_path, *POLICY, "--to", "megatron")
    words = ["check", tmp_path / "train.sh", "--on", "dgx-h100:64", "--json"]
    alone = json.loads(ran(capsys, *words)[1])
    named = json.loads(ran(capsys, *words, "--model", "llama-3-70b")[1])
    assert alone["step_s"] == pytest.approx(named["step_s"], rel=1e-3)


def test_check_names_the_rule_and_the_nearest(capsys, tmp_path):
    exported(capsys, tmp_path, *POLICY, "--to", "megatron")
    script = tmp_path / "train.sh"
    script.write_text(script.read_text().replace("--global-batch-size 128", "--global-batch-size 127"))
    code, out, _ = ran(capsys, "check", script, "--model", "llama-3-70b", "--on", "dgx-h100:64", "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["legal"], found["rule"]) == (False, "batch divides")
    assert found["nearest"]["dp"] == 1


def test_check_says_that_memory_does_not_suffice_and_what_would(capsys, tmp_path):
    text = "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 1 "
    (tmp_path / "run.sh").write_text(text + "--micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16\n")
    code, out, _ = ran(capsys, "check", tmp_path / "run.sh", "--model", "llama-3-8b", "--on", "8xh100", "--json")
    found = json.loads(out)
    assert (code, found["legal"], found["fits"]) == (1, True, False)
    assert any("zero" in change["changes"] for change in found["improvements"]), "whole copies of 8B do not fit"


def test_secrets_are_not_echoed(capsys, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(
        "python pretrain_gpt.py --tensor-model-parallel-size 2 --wandb-api-key 0123secret "
        "--url https://me:0123secret@x --hub-token hf_0123secret --other hf_0123secret --micro-batch-size 0123secret\n"
    )
    code, out, err = ran(capsys, "check", script)
    assert code == 2
    assert "micro_batch_size" in err
    script.write_text(script.read_text().replace("--micro-batch-size 0123secret", ""))
    code, out, err = ran(capsys, "check", script, "--json")
    assert code == 0
    assert "secret" not in out + err
    assert "(not shown)" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [("echo hello\n", "is of no known program"), ("run --tensor-model-parallel-size two\n", "write a whole number")],
)
def test_bad_files_are_one_line(capsys, tmp_path, text, said):
    (tmp_path / "a.sh").write_text(text)
    code, out, err = ran(capsys, "check", tmp_path / "a.sh")
    assert (code, out) == (2, "")
    assert said in err
    assert ran(capsys, "check", tmp_path / "none.sh")[0] == 2
