"""`check --fix`: the files say the better policy, nothing else in them changes, and what must not be changed is not."""

import json
from pathlib import Path

import pytest

from launches import launch_of
from shardwise.programs.formats import Known, format_of, read_documents, settled
from shardwise.programs.formats._edit_nested import added, replaced
from shardwise.programs.formats._edit_toml import added as added_to_toml
from shardwise.programs.formats._edit_toml import replaced as replaced_in_toml
from shardwise.programs.formats._fix import fixed
from shardwise.programs.formats._source import open_document
from shardwise.show.cli import main
from shardwise.spec.policy import Policy

SHELL = """# the 8B
TP=${TP:-2}   # inside a node
ARGS=(
    --tensor-model-parallel-size $TP
    --micro-batch-size 1      # small
    --global-batch-size 128
    --sequence-parallel
)
torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}" \\
    --seq-length 8192 \\
    --bf16
"""


def changed(tmp_path, name, text, target, now, then, version=""):
    """(the text, the diff) of a file of the first policy with the second in it."""
    path = tmp_path / name
    path.write_text(text)
    form = format_of(target)
    launch = launch_of(form, Policy(**now), "llama-3-8b", version)
    documents = [open_document(path)]
    _, found = read_documents(documents, Known(launch.policy.gpus, 32), target)
    assert settled(found.policy, launch.case) == launch.policy, "the test's own file"
    wanted = settled(Policy(**{**now, **then}), launch.case)
    done = fixed(form, documents, launch, wanted, Known(launch.policy.gpus, 32))
    return done.texts[path], done.diff


MEGATRON = {"dp": 4, "tp": 2, "zero": 0, "overlap_grad": False, "overlap_param": False, "loss": "plain"}


def test_a_script_keeps_its_comments_and_its_variables(tmp_path):
    text, diff = changed(tmp_path, "a.sh", SHELL, "megatron", MEGATRON, {"dp": 2, "tp": 4, "micro_batch": 2})
    assert text == SHELL.replace("${TP:-2}", "${TP:-4}").replace("-batch-size 1 ", "-batch-size 2 ")
    assert "-TP=${TP:-2}   # inside a node\n+TP=${TP:-4}   # inside a node\n" in diff
    assert f"--- {tmp_path}/a.sh" in diff


def test_a_diff_shows_no_secrets(tmp_path):
    keys = 'WANDB_API_KEY=0123secret HUB=hf_0123secret URL=https://me:0123secret@x --hub-token "0123secret"'
    script = SHELL.replace("# inside", f"# {keys} inside")
    text, diff = changed(tmp_path, "a.sh", script, "megatron", MEGATRON, {"dp": 2, "tp": 4})
    assert text == script.replace("${TP:-2}", "${TP:-4}")
    assert "+TP=${TP:-4}" in diff
    assert "0123" not in diff
    assert '--hub-token "(not shown)"' in diff


def test_switches_come_and_go_with_their_lines(tmp_path):
    text, _ = changed(tmp_path, "a.sh", SHELL, "megatron", MEGATRON, {"sp": False})
    assert text == SHELL.replace("    --sequence-parallel\n", "")
    text, _ = changed(tmp_path, "a.sh", SHELL, "megatron", MEGATRON, {"zero": 1})
    assert "\n    --use-distributed-optimizer\n" in text


def test_the_last_line_of_a_command_may_go(tmp_path):
    script = SHELL.replace("    --bf16\n", "    --bf16 \\\n    --overlap-grad-reduce\n") + "echo done\n"
    text, _ = changed(tmp_path, "a.sh", script, "megatron", {**MEGATRON, "overlap_grad": True}, {"overlap_grad": False})
    assert text == script.replace(" \\\n    --overlap-grad-reduce", "")


def test_a_variable_with_two_uses_stays(tmp_path):
    script = SHELL.replace("--bf16", "--bf16 --other-size $TP")
    text, _ = changed(tmp_path, "a.sh", script, "megatron", MEGATRON, {"dp": 2, "tp": 4})
    assert text == script.replace("parallel-size $TP", "parallel-size 4")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", r"from \$TP, which the environment or a file outside sets"),
        ("source ../outside.sh\n", r"from \$TP, which the environment or a file outside sets"),
        ("TP=$((1 + 1))\n", "computed by the script"),
    ],
)
def test_what_is_set_elsewhere_is_refused(tmp_path, line, said):
    inside = tmp_path / "run"
    inside.mkdir()
    (tmp_path / "outside.sh").write_text("TP=2\n")
    script = line + SHELL.replace("TP=${TP:-2}", "X=2")
    path = inside / "a.sh"
    path.write_text(script)
    form = format_of("megatron")
    launch = launch_of(form, Policy(**MEGATRON), "llama-3-8b")
    wanted = settled(Policy(**{**MEGATRON, "dp": 2, "tp": 4}), launch.case)
    with pytest.raises(ValueError, match=said):
        fixed(form, [open_document(path)], launch, wanted, Known(8, 32))


def test_a_sourced_file_of_the_folder_is_changed(tmp_path):
    (tmp_path / "sizes.sh").write_text("TP=2  # ours\n")
    path = tmp_path / "a.sh"
    path.write_text("source ./sizes.sh\n" + SHELL.replace("TP=${TP:-2}", "X=2"))
    form = format_of("megatron")
    launch = launch_of(form, Policy(**MEGATRON), "llama-3-8b")
    wanted = settled(Policy(**{**MEGATRON, "dp": 2, "tp": 4}), launch.case)
    done = fixed(form, [open_document(path)], launch, wanted, Known(8, 32))
    assert done.texts == {(tmp_path / "sizes.sh").resolve(): "TP=4  # ours\n"}


def test_json_keeps_its_form(tmp_path):
    text = (
        '{\n\t"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8,\n\t"train_batch_size": 64,\n'
        '\t"bf16": {"enabled": true},\n\t"zero_optimization": {\n\t\t"stage": 1,\n\t\t"overlap_comm": true\n\t}\n}\n'
    )
    now = {"dp": 8, "zero": 1, "sp": False}
    found, _ = changed(tmp_path, "ds.json", text, "deepspeed", now, {"zero": 3})
    assert found == text.replace('"stage": 1', '"stage": 3')


def test_what_was_left_to_a_default_is_stated(tmp_path):
    text = '{"train_micro_batch_size_per_gpu": 1, "train_batch_size": 64, "zero_optimization": {"stage": 1}}\n'
    now = {"dp": 8, "zero": 1, "sp": False, "overlap_grad": False}
    found, _ = changed(tmp_path, "ds.json", text, "deepspeed", now, {"zero": 3})
    assert found == text.replace('"stage": 1', '"stage": 3, "overlap_comm": false')


def test_toml_keeps_its_comments(tmp_path):
    text = (
        '[model]\nflavor = "8B"\n\n[training]\nlocal_batch_size = 1 # one\nseq_len = 8192\nglobal_batch_size = 64\n\n'
        '[parallelism]\ndata_parallel_shard_degree = -1  # all\n\n[activation_checkpoint]\nmode = "none" # off\n'
    )
    now = {"dp": 8, "zero": 3, "loss": "plain", "overlap_pp": False}
    found, _ = changed(tmp_path, "a.toml", text, "torchtitan", now, {"recompute": "full"}, "0.2.2")
    assert found == text.replace('"none" # off', '"full" # off')
    found, _ = changed(tmp_path, "a.toml", text, "torchtitan", now, {"dp": 4, "tp": 2}, "0.2.2")
    assert "data_parallel_shard_degree = 4  # all\ntensor_parallel_degree = 2\n\n[activation" in found


def test_what_a_file_says_in_other_words(tmp_path):
    words = "--recompute-granularity full --recompute-method block --recompute-num-layers 99"
    script = SHELL.replace("--bf16", f"--bf16 --pipeline-model-parallel-size 2 {words}")
    now = {**MEGATRON, "dp": 2, "pp": 2, "recompute": "full", "overlap_pp": False}
    text, _ = changed(tmp_path, "a.sh", script, "megatron", now, {"recompute_layers": 4})
    assert text == script.replace("--recompute-num-layers 99", "--recompute-num-layers 4")


def test_a_mapping_may_lose_its_last_setting(tmp_path):
    text = (
        "step_scheduler: {global_batch_size: 64, local_batch_size: 2}\ndataset: {seq_len: 8192}\ndistributed:\n"
        "  strategy: fsdp2\n  pp_size: 2  # stages\n  pipeline:\n    pp_microbatch_size: 1\n    layers_per_stage: 16\n"
    )
    now = {"dp": 4, "pp": 2, "zero": 2, "sp": False, "overlap_pp": False}
    found, _ = changed(tmp_path, "a.yaml", text, "automodel", now, {"dp": 8, "pp": 1, "zero": 3})
    assert "  pp_size: 1  # stages\n  pipeline:\n" in found
    assert "layers_per_stage" not in found


@pytest.mark.parametrize(
    ("text", "name", "value", "wanted"),
    [
        ("a: 1 # x\nb:\n  c: 2\n", "b.c", "3", "a: 1 # x\nb:\n  c: 3\n"),
        ("a:\nb: 2\n", "a", "3", "a: 3\nb: 2\n"),
        ("a: {b: 1, c: 2} # x\n", "a.c", "3", "a: {b: 1, c: 3} # x\n"),
        ("a: 1\nb: 2 # x\nc: 3\n", "b", None, "a: 1\nc: 3\n"),
        ("a: {b: 1, c: 2}\n", "a.b", None, "a: {b: null, c: 2}\n"),
        ("a:\n  - x\n  - y\nb: 1\n", "a", ["z"], "a:\n  [z]\nb: 1\n"),
        ("--a-b: 1\n", "a_b", "2", "--a-b: 2\n"),
    ],
)
def test_values_in_yaml(text, name, value, wanted):
    assert replaced(text, "yaml", name, value) == wanted


@pytest.mark.parametrize(
    ("text", "kind", "name", "wanted"),
    [
        ("a:\n  b: 1 # x\nc: 2\n", "yaml", "a.d", "a:\n  b: 1 # x\n  d: 5\nc: 2\n"),
        ("a: 1\n", "yaml", "b.c.d", "a: 1\nb:\n  c:\n    d: 5\n"),
        ("a: {b: 1}\n", "yaml", "a.d", "a: {b: 1, d: 5}\n"),
        ("m:\n  --x-y: 1\n", "yaml", "d_e", "m:\n  --x-y: 1\n  --d-e: 5\n"),
        ('{"a": {}}', "json", "a.d", '{"a": {"d": 5}}'),
        ('{\n  "a": 1\n}', "json", "b.d", '{\n  "a": 1,\n  "b": {"d": 5}\n}'),
    ],
)
def test_new_settings_in_nested_files(text, kind, name, wanted):
    assert added(text, kind, name, 5) == wanted


def test_toml_that_spans_lines():
    text = '[a]\nlist = [ # "[\n  1, # one\n  2,\n] # end\nb = "x # y"\n'
    assert replaced_in_toml(text, "toml", "a.list", [3]) == '[a]\nlist = [3] # end\nb = "x # y"\n'
    assert replaced_in_toml(text, "toml", "a.b", None) == text.removesuffix('b = "x # y"\n')
    assert replaced_in_toml(text, "toml", "a.c", 1) is None
    assert added_to_toml(text, "toml", "c.d", True).endswith("\n\n[c]\nd = true\n")


def ran(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(SHELL)
    return path


JUDGED = ["--model", "llama-3-8b", "--on", "8xh100"]


def test_fix_writes_what_it_shows(capsys, script, tmp_path):
    _, out, _ = ran(capsys, "check", script, *JUDGED, "--fix", "--out", tmp_path / "better.sh", "--json")
    found = json.loads(out)
    assert script.read_text() == SHELL
    assert found["fix"]["files"] == [str(tmp_path / "better.sh")]
    again = json.loads(ran(capsys, "check", tmp_path / "better.sh", *JUDGED, "--json")[1])
    assert again["step_s"] == pytest.approx(found["improvements"][0]["step_s"], rel=1e-9)
    _, out, _ = ran(capsys, "check", script, *JUDGED, "--fix", "--in-place", "--overwrite")
    assert script.read_text() == (tmp_path / "better.sh").read_text()
    assert f"+++ {script}" in out


def test_fix_without_a_place_only_shows(capsys, script):
    _, out, _ = ran(capsys, "check", script, *JUDGED, "--fix", "--whole-plan")
    assert "\n@@ " in out
    assert script.read_text() == SHELL


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fix"], "write --model and --on"),
        ([*JUDGED, "--in-place"], "write --fix too"),
        ([*JUDGED, "--fix", "--in-place"], "write --overwrite too"),
        ([*JUDGED, "--fix", "--out", "x", "--in-place"], "write one of them"),
        ([*JUDGED, "--fix", "--out", "run.sh"], "or --overwrite"),
    ],
)
def test_what_does_not_go_together(capsys, script, monkeypatch, words, said):
    monkeypatch.chdir(script.parent)
    code, out, err = ran(capsys, "check", script, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert script.read_text() == SHELL
