"""`auto` with several scripts: each is answered in turn, and one that is not taken says why in its place."""

import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: no model can be split")

from one_thread import one_thread  # noqa: F401  a fixture for every test here
from shardwise.show.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MISSING = "import a_library_nobody_has\n\ndef build(): ...\n\ndef batch(): ...\n\ndef step(): ...\n"
LOOSE = """
import torch
from torch import nn
from helper import SIZE

torch.set_default_dtype(torch.bfloat16)

def build():
    model = nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in range(SIZE)])
    return model, torch.optim.SGD(model.parameters())

def batch():
    return torch.zeros(4, 8)

def step(model, optimizer, x):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("auto_gpt.py", "trace_llama.py", "sync_two_lines.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "missing.py").write_text(MISSING)
    return tmp_path


def test_each_is_answered_in_its_place(folder, capsys):
    names = ["missing.py", "auto_gpt.py", "trace_llama.py", "sync_two_lines.py", "nowhere.py"]
    assert main(["auto", *names, "--on", "2xh100", "--fix", "tp=2", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [each["script"] for each in found["scripts"]] == names
    assert found["counts"] == {"asked": 5, "hold": 1, "fail": 0, "not_proven": 0, "fit": 1, "refused": 4}
    assert found["scripts"][1]["holds"]
    assert found["scripts"][1]["split"]["tp"] == 2
    why = [each.get("refused", "") for each in found["scripts"]]
    assert "needs a_library_nobody_has, which is not installed" in why[0]
    assert "`shardwise trace`" in why[2]
    assert "split already" in why[3]
    assert "nowhere.py" in why[4]
    assert not any("\n" in each for each in why)
    assert "2 of 5: auto_gpt.py" in err
    assert os.getcwd() == str(folder)


@pytest.mark.usefixtures("folder")
def test_the_table_fits_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["auto", "auto_gpt.py", "missing.py", "--on", "2xh100", "--fix", "tp=2"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "1 of 2 on 2xh100 hold" in out
    assert "not taken:" in out
    assert "missing.py: line 1" in out


@pytest.mark.usefixtures("folder")
def test_where_none_is_taken_it_is_bad_input(capsys):
    assert main(["auto", "missing.py", "sync_two_lines.py", "--on", "2xh100", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["counts"]["refused"] == 2
    assert main(["auto", "missing.py", "--on", "2xh100"]) == 2
    assert "a_library_nobody_has" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--out", "plan.json"], ["--model-out", "model.json"], ["--explain"]])
def test_what_is_written_is_of_one_script(flags, folder, capsys):
    assert main(["auto", "auto_gpt.py", "missing.py", "--on", "2xh100", *flags]) == 2
    assert f"with {flags[0]} write one" in capsys.readouterr().err
    assert not (folder / "plan.json").exists()


def test_a_script_leaves_nothing_to_the_next(tmp_path, capsys):
    import torch

    for name, size in (("one", 4), ("two", 6)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(LOOSE)
        (tmp_path / name / "helper.py").write_text(f"SIZE = {size}\n")
    paths = [str(tmp_path / name / "train.py") for name in ("one", "two")]
    assert main(["auto", *paths, "--on", "2xh100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scripts"]
    assert [each["cuts"][0]["blocks"] for each in found] == [4, 6]
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("name", ["auto_pictures.py", "auto_encoder.py", "auto_experts.py"])
def test_examples_are_taken_as_they_are(name, capsys):
    assert main(["auto", str(EXAMPLES / name), "--on", "2xh100", "--fix", "tp=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"]
    assert found["prediction"]["unknown"] == ""
    assert found["cuts"][0]["share"] > 0.9
    assert len((EXAMPLES / name).read_text().splitlines()) < 80
