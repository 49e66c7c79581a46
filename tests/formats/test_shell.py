"""Launch scripts are read as data: variables, arrays, defaults and continuations resolved, nothing executed."""

import json
import os

import pytest

from shardwise.programs.formats import read_launch
from shardwise.programs.formats._settings import options_of
from shardwise.programs.formats._shell import read_shell
from shardwise.programs.formats._shell_words import open_word
from shardwise.programs.formats._source import open_document
from shardwise.show.cli import main

SCRIPT = r"""#!/bin/bash
#SBATCH --nodes=4   # of eight
#SBATCH --gpus-per-node=8
TP=${TP:-4}
PP=$((TP * 2 / 4))
PARALLEL=( --tensor-model-parallel-size $TP  # a comment
  --pipeline-model-parallel-size "${PP}" )
PARALLEL+=(--sequence-parallel)
BATCH="
   --micro-batch-size 1 \
   --global-batch-size ${GBS-256}
"
cat <<EOF > notes.txt
--tensor-model-parallel-size 99
EOF
if [ -n "$DEBUG" ]; then
  PARALLEL+=(--log-interval 1)
fi
export NAME='a b'
torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py \
  "${PARALLEL[@]}" $BATCH --save "$(pwd)/out" --tag "$NAME" "${NONE[@]}" 2>&1 | tee log.txt
"""


def read(tmp_path, text, name="run.sh"):
    (tmp_path / name).write_text(text)
    return open_document(tmp_path / name)


def test_a_script_becomes_the_options_of_its_program(tmp_path):
    document = read(tmp_path, SCRIPT)
    assert options_of(document.words) == {
        "tensor_model_parallel_size": "4", "pipeline_model_parallel_size": "2", "sequence_parallel": True,
        "micro_batch_size": "1", "global_batch_size": "256", "save": "./out", "tag": "a b",
    }  # fmt: skip
    assert document.gpus == 32
    assert "DEBUG" in document.notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=1; run --a $A", ["--a", "1"]),
        ("run --a ${A:-${B:-3}}", ["--a", "3"]),
        ("B=2\nrun --a ${A:-${B:-3}}", ["--a", "2"]),
        ("A='--x 1 --y 2'\nrun $A", ["--x", "1", "--y", "2"]),
        ("A='--x 1'\nrun \"$A\"", ["--x 1"]),
        ("A=(1 2)\nA+=(3)\nrun --a ${A[*]} --b \"${A[@]}\"", ["--a", "1", "2", "3", "--b", "1", "2", "3"]),
        ("run --a \\\n  1", ["--a", "1"]),
        ("run --a $((2 + 3 * (4 - 1)))", ["--a", "11"]),
        ("run --a $(rm -rf x) --b", ["--a", open_word("$(rm -rf x)"), "--b"]),
        ("run --a `date` --b", ["--a", open_word("`date`"), "--b"]),
        ("run --a $TP --b", ["--a", open_word("$TP"), "--b"]),
        ("if nvidia-smi; then TP=2; else TP=4; fi; run --tp $TP", ["--tp", open_word("$TP: 2 or 4")]),
        ("A='--a 1'\nif ping x; then A+=' --b 2'; fi\nrun $A", ["--a", "1", open_word("$A: perhaps --b 2")]),
        ("A=(1)\nif ping x; then A+=(2); fi\nrun ${A[@]}", ["1", open_word("$A: perhaps 2")]),
        ("case $1 in 7) TP=2;; *) echo usage; exit 1;; esac\nrun ${TP:-none}", ["none"]),
        ("if [ $# -ne 2 ]; then echo usage; exit 1; fi\nrun 1", ["1"]),
        ("A=$(hostname)\nwhile [ $A != x ]; do TP=3; done\nTP=${TP}\nrun $TP", [open_word("$TP: 3 or not set")]),
        ("run --a ${A:+1} --b", ["--a", "--b"]),
        ("run --a 1 > out.txt 2>&1", ["--a", "1"]),
        ("run --a a\\ b", ["--a", "a b"]),
        ('A=(1 2)\nB="--a ${A[@]} --b"\nrun $B', ["--a", "1", "2", "--b"]),
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node 8\nrun $SLURM_NNODES $SLURM_GPUS_PER_NODE", ["4", "8"]),
        ("#SBATCH -N 4 # nodes\n#SBATCH --ntasks-per-node=8\nrun $SLURM_NTASKS", ["32"]),
    ],
)  # fmt: skip
def test_words(text, words):
    assert read_shell(text).commands[-1] == ["run", *words]


def test_nothing_is_executed(tmp_path):
    read(tmp_path, f"touch {tmp_path}/there\nX=$(touch {tmp_path}/there)\nrun --a `touch {tmp_path}/there`")
    assert not (tmp_path / "there").exists()


def test_sourced_files_stay_in_the_folder(tmp_path):
    inside, outside = tmp_path / "run", tmp_path / "other.sh"
    inside.mkdir()
    (inside / "common.sh").write_text("TP=8\n")
    outside.write_text("PP=8\n")
    text = "source ./common.sh\n. ../other.sh\npython t.py --tp ${TP:-1} --pp ${PP:-1}\n"
    document = read(inside, text)
    assert options_of(document.words) == {"tp": "8", "pp": "1"}
    assert "../other.sh" in document.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sh", "run --a 'x", "never closed"),
        ("a.sh", 'run --a "x', "never closed"),
        ("a.sh", "run --a ${x", "never closed"),
        ("a.yaml", "a: &x [1]\nb: *x\n", "aliases"),
        ("a.yaml", "[1, 2]", "has no settings"),
        ("a.yaml", "{" * 50, "YAML"),
        ("a.json", '{"a": ', "not JSON"),
        ("a.json", '{"a":' * 60 + "1" + "}" * 60, "deep"),
        ("a.toml", "a = = 1", "not TOML"),
        ("a.sh", "x" * (2**20 + 1), "larger than 1 MiB"),
    ],
)  # fmt: skip
def test_bad_files_are_one_line(tmp_path, name, text, said):
    with pytest.raises(ValueError, match=said):
        read(tmp_path, text, name)


def test_a_script_that_grows_is_stopped(tmp_path):
    grows = "A=xxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A$A$A\n" * 20 + "run --a $A\n"
    with pytest.raises(ValueError, match="characters"):
        read(tmp_path, grows)
    many = "A=(a b c d e f g h)\n" + 'A=("${A[@]}" "${A[@]}" "${A[@]}" "${A[@]}")\n' * 12 + "run ${A[@]}\n"
    with pytest.raises(ValueError, match="characters"):
        read(tmp_path, many)


def test_one_command_line_is_piped_in(capsys):
    line = b"torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --seq-length 64"
    read, write = os.pipe()
    os.write(write, line)
    os.close(write)
    kept = os.dup(0)
    try:
        os.dup2(read, 0)
        assert main(["check", "/dev/stdin", "--json"]) == 0
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(read)
    assert json.loads(capsys.readouterr().out)["policy"]["tp"] == 8
    assert main(["check", "/dev/stdin", "--fix"]) == 2
    assert "has no file to change" in capsys.readouterr().err


OPEN_SCRIPT = """if [ "$SIZE" = 7b ]; then TP=2; else TP=$2; fi
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size $TP --seq-length 64 --load $CKPT $EXTRA_ARGS
"""


def test_an_open_value_that_decides_is_named_and_can_be_given(tmp_path, capsys):
    path = tmp_path / "run.sh"
    path.write_text(OPEN_SCRIPT)
    assert main(["check", str(path), "--json"]) == 2
    assert "tensor_model_parallel_size is '$2'" in (refusal := capsys.readouterr().err)
    assert "--set" in refusal
    for given, tp in (("SIZE=7b", 2), ("2=4", 4)):
        assert main(["check", str(path), "--json", "--set", given]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["policy"]["tp"] == tp
        assert any("EXTRA_ARGS" in note for note in answer["notes"])


@pytest.mark.parametrize(("given", "wrong"), [(["tp"], "tp"), (["a-b=1"], "a-b"), (["TP=2", "TP=4"], "TP")])
def test_a_variable_is_given_once_by_name_and_value(given, wrong, tmp_path, capsys):
    path = tmp_path / "run.sh"
    path.write_text(OPEN_SCRIPT)
    assert main(["check", str(path), *(word for pair in given for word in ("--set", pair))]) == 2
    assert f"set: {wrong}" in capsys.readouterr().err.replace("'", "")


def test_placeholders_in_angle_brackets_are_words(tmp_path):
    """`--save <PATH TO IT> --fp16`: the last sign would send the output into a file called --fp16."""
    (tmp_path / "run.sh").write_text(
        "#SBATCH --nodes=4 --gpus-per-node=mi250:8\n"
        'options="--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --micro-batch-size 1 '
        '--global-batch-size 32 --max-position-embeddings 64 --save <PATH TO IT> --fp16"\n'
        'srun -l sh -c "python pretrain_gpt.py ${options}"\n'
    )
    found = read_launch([tmp_path / "run.sh"])[1]
    assert (found.precision, found.gpus) == ("fp16", 32)
