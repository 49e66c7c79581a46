"""`shardwise checkpoints`: lists, verifies, deletes old ones; and what a resumed run says of what changed."""

import json

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.runtime.checkpoints.lock import lock  # noqa: E402
from shardwise.show.cli import main  # noqa: E402

TINY = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
}  # fmt: skip


def model(tmp_path, name: str = "config", **changed) -> str:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({**TINY, **changed}))
    return str(path)


def run(model: str, folder, *words: str) -> int:
    given = ["--on", "1xh100", "--seq", "16", "--device", "cpu", "--every", "1"]
    given += [] if "--global-batch" in words else ["--global-batch", "4"]
    return main(["run", model, *given, "--checkpoints", str(folder), *words])


@pytest.fixture
def folder(tmp_path, capsys):
    assert run(model(tmp_path), tmp_path / "kept", "--steps", "3") == 0
    capsys.readouterr()
    return tmp_path / "kept"


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_list_verify_and_keep(folder, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["checkpoints", str(folder)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("3 checkpoints in")
    assert max(map(len, told.splitlines())) <= 80
    flip(folder / "step-00000002" / "rank-00000.bin")
    assert main(["checkpoints", str(folder)]) == 0, "its files are there, in their size"
    assert main(["checkpoints", str(folder), "--verify"]) == 1
    assert "checksum" in " ".join(capsys.readouterr().out.split())
    assert main(["checkpoints", str(folder), "--verify", "--keep", "1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["deleted"] == ["step-00000001"]
    assert [row["name"] for row in found["checkpoints"]] == ["step-00000003", "step-00000002"]
    assert [row["damage"] is None for row in found["checkpoints"]] == [True, False]
    assert found["checkpoints"][0]["of"]["model"]["layers"] == 2
    assert found["locked_by"] is None


def test_none_are_deleted_under_a_run(folder, capsys) -> None:
    held = lock(folder)
    assert main(["checkpoints", str(folder), "--keep", "1"]) == 2
    assert "in use by process" in capsys.readouterr().err
    assert main(["checkpoints", str(folder)]) == 0
    assert "locked" in capsys.readouterr().out
    held.release()
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(("words", "told"), [(["nowhere"], "is not a folder"), ([".", "--keep", "-1"], "keep: -1")])
def test_mistakes(words, told: str, capsys) -> None:
    assert main(["checkpoints", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_run_keeps_so_many(tmp_path, capsys) -> None:
    assert run(model(tmp_path), tmp_path / "kept", "--steps", "5", "--keep", "2") == 0
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["step-00000004", "step-00000005"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("changed", "words", "told"),
    [
        ({"num_hidden_layers": 1}, (), "model.layers was 2, is 1"),
        ({"tie_word_embeddings": True}, (), "model.tied was False, is True"),
        ({}, ("--seed", "1"), "seed was 0, is 1"),
        ({}, ("--global-batch", "8"), "batch.global_batch was 4, is 8"),
        ({}, ("--optimizer", "sgd"), "optimizer.name was 'adamw', is 'sgd'"),
        ({}, ("--data", __file__, "--tokenizer", "byte"), "data.content was"),
        ({}, ("--eval-every", "1"), "data.content was"),
    ],
)
def test_another_run_is_refused(changed: dict, words: tuple, told: str, folder, tmp_path, capsys) -> None:
    if "--data" in words:
        text = tmp_path / "text"
        text.write_text("something else. " * 100)
        words = tuple(str(text) if word == __file__ else word for word in words)
    code = run(model(tmp_path, "other", **changed), folder, "--steps", "4", *words)
    said = capsys.readouterr().err.strip()
    assert code == 2
    assert len(said.splitlines()) == 1
    assert "step-00000003 is of another run (" in said
    assert told in said
    assert "--force" in said
    assert len(list(folder.iterdir())) == 3, "no lock, no step"


def test_other_software_is_refused(folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert run(model(tmp_path), folder, "--steps", "4") == 2
    assert "is '2.99.0'" in capsys.readouterr().err


def test_what_may_change(folder, tmp_path, capsys) -> None:
    """Its name, the rate, the number of steps."""
    assert run(model(tmp_path, "renamed"), folder, "--steps", "4", "--rate", "1e-4") == 0
    assert "resumed after step 3" in capsys.readouterr().err


def test_by_force(folder, tmp_path, capsys) -> None:
    assert run(model(tmp_path), folder, "--steps", "4", "--seed", "1", "--force") == 0
    assert "going on from step-00000003 by force, though seed was 0, is 1" in capsys.readouterr().err
