"""A folder of checkpoints that is renamed, removed or replaced under a run: it is not made again, and nothing is
written into one that another run has."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from test_checkpoints_verb import model  # noqa: E402

from shardwise.run.runtime.checkpoints.folder import found_in  # noqa: E402
from shardwise.run.runtime.checkpoints.lock import NAME, lock  # noqa: E402
from shardwise.run.runtime.train.loop import Trainer  # noqa: E402
from shardwise.show.cli import main  # noqa: E402

GONE = "was renamed, removed or replaced during the run"


@pytest.fixture
def happens(monkeypatch) -> Callable[[int, Callable[[], object]], None]:
    """Something is done while a step is made."""
    one_step = Trainer.one_step
    plan: dict[int, Callable[[], object]] = {}

    def step(trainer: Trainer):
        if trainer.checkpoints is not None:
            trainer.checkpoints.saver.wait()
        plan.get(trainer.step + 1, lambda: None)()
        return one_step(trainer)

    monkeypatch.setattr(Trainer, "one_step", step)
    return plan.__setitem__


def run(tmp_path: Path, capsys, *words: str) -> tuple[int, dict, str]:
    code = main([
        "run", model(tmp_path), "--on", "1xh100", "--seq", "16", "--device", "cpu", "--global-batch", "4", "--every",
        "2", "--steps", "8", "--checkpoints", str(tmp_path / "kept"), "--json", *words,
    ])  # fmt: skip
    told = capsys.readouterr()
    return code, json.loads(told.out), told.err


def names(folder: Path) -> list[str]:
    return [path.name for path in found_in(folder)]


@pytest.mark.parametrize("how", ["--async-checkpoints", "--no-async-checkpoints"])
def test_renamed(how: str, happens, tmp_path, capsys) -> None:
    kept, moved = tmp_path / "kept", tmp_path / "moved"
    happens(3, lambda: kept.rename(moved))
    refused = []

    def second() -> None:
        with pytest.raises(ValueError, match="in use by process") as refusal:
            lock(moved, patience_s=0.0)
        refused.append(refusal)

    happens(4, second)
    code, found, told = run(tmp_path, capsys, how)
    assert code == 1
    assert len(refused) == 1, "the lock went along"
    assert f"checkpoint of step 4: {str(kept)!r} {GONE} (rank 0)" in told.splitlines()
    assert found["stopped"].endswith(f"step 2 was saved before ({str(kept)!r} {GONE})")
    assert not kept.exists(), "it is not made again"
    assert sorted(path.name for path in moved.iterdir()) == ["step-00000002"], "the lock was given back"


def test_removed(happens, tmp_path, capsys) -> None:
    happens(3, lambda: shutil.rmtree(tmp_path / "kept"))
    code, _, told = run(tmp_path, capsys)
    assert code == 1
    assert GONE in told
    assert not (tmp_path / "kept").exists()


def test_replaced_by_one_that_another_run_has(happens, tmp_path, capsys) -> None:
    kept, others = tmp_path / "kept", []

    def replace() -> None:
        kept.rename(tmp_path / "moved")
        kept.mkdir()
        others.append(lock(kept))

    happens(3, replace)
    code, _, told = run(tmp_path, capsys)
    assert code == 1
    assert GONE in told
    assert [path.name for path in kept.iterdir()] == [NAME], "its lock stays, and nothing else is there"
    others[0].check()
    others[0].release()


def test_a_link_that_is_turned_changes_nothing(happens, tmp_path, capsys) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    kept = tmp_path / "kept"
    kept.symlink_to(tmp_path / "one")

    def turn() -> None:
        kept.unlink()
        kept.symlink_to(tmp_path / "two")

    happens(3, turn)
    assert run(tmp_path, capsys)[0] == 0
    assert list((tmp_path / "two").iterdir()) == []
    assert len(names(tmp_path / "one")) == 4


def test_trained_on_unsaved(happens, tmp_path, capsys) -> None:
    happens(3, lambda: (tmp_path / "kept").rename(tmp_path / "moved"))
    code, found, told = run(tmp_path, capsys, "--go-on-unsaved")
    assert (code, len(found["steps"]), found["stopped"]) == (1, 8, None)
    assert not (tmp_path / "kept").exists()
    last = told.splitlines()[-1]
    assert "not written: the state after step 8 (step 2 was saved before" in last
    assert last in found["notes"]


def test_named_back(happens, tmp_path, capsys) -> None:
    """It is the same folder, with the same lock."""
    happens(3, lambda: (tmp_path / "kept").rename(tmp_path / "moved"))
    happens(5, lambda: (tmp_path / "moved").rename(tmp_path / "kept"))
    code, _, told = run(tmp_path, capsys, "--go-on-unsaved")
    assert code == 0
    assert f"checkpoint of step 4: {str(tmp_path / 'kept')!r} {GONE}" in told
    assert names(tmp_path / "kept") == ["step-00000008", "step-00000006", "step-00000002"]


def test_the_lock_is_removed(happens, tmp_path, capsys) -> None:
    """Another run may have the folder by now."""
    happens(3, lambda: (tmp_path / "kept" / NAME).unlink())
    code, _, told = run(tmp_path, capsys)
    assert code == 1
    assert f"{str(tmp_path / 'kept' / NAME)!r} was removed during the run" in told
    assert names(tmp_path / "kept") == ["step-00000002"]


def test_renamed_while_one_is_written(tmp_path, capsys, monkeypatch) -> None:
    """Between its parts and its name."""
    kept = tmp_path / "kept"
    from shardwise.run.runtime.checkpoints import storage

    write = storage.write_manifest

    def renamed(path: Path, manifest) -> None:
        write(path, manifest)
        if manifest.step == 4:
            kept.rename(tmp_path / "moved")
            kept.mkdir()

    monkeypatch.setattr(storage, "write_manifest", renamed)
    monkeypatch.setattr(storage, "flush", lambda _: None)
    code, _, told = run(tmp_path, capsys)
    assert code == 1
    assert f"checkpoint of step 4: {str(kept)!r} {GONE}" in told
    assert list(kept.iterdir()) == []
    assert names(tmp_path / "moved") == ["step-00000002"]
