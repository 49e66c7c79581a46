"""A manifest written again with every checksum right: what is wrong is named, and the one before is taken."""

import json
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from test_checkpoints_verb import TINY  # noqa: E402
from training import GPT, LLAMA, MODELS, task_of  # noqa: E402

from _kills_resealed import RESEALED, pieces_of, seal  # noqa: E402
from shardwise.run.runtime.checkpoints.folder import found_in, newest, present, prune  # noqa: E402
from shardwise.run.runtime.checkpoints.identity import identity_of  # noqa: E402
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint, write_manifest  # noqa: E402
from shardwise.run.runtime.checkpoints.mark import MARK  # noqa: E402
from shardwise.run.runtime.checkpoints.state import forms_of  # noqa: E402
from shardwise.run.runtime.checkpoints.stated import stated_forms  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.feed import trained_on  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings  # noqa: E402
from shardwise.show.cli import main  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

NEWEST = "step-00000003"
NAMED = {
    "resealed without a block": "parameter.layers.1.down.weight[0:32, 0:96] is missing",
    "resealed with a block twice": "there 2 times",
    "resealed with a block short of a row": " is missing",
    "resealed with a row on another": "there 2 times",
    "resealed as another dtype": "int32 [",
    "resealed in another shape": "float32 [",
    "resealed without a tensor": "parameter.layers.1.q.weight is missing",
    "resealed without second moments": "exp_avg_sq.",
    "resealed with a tensor named twice": "name twice",
    "resealed with NaN in a parameter": "holds NaN or infinity",
    "resealed with infinity in a moment": "exp_avg.layers.0.",
    "a part behind a link": "rank-00000.bin is a symbolic link",
    "a part longer than listed": "rank-00000.bin has ",
}


def run(folder: Path, *words: str) -> int:
    return main([
        "run", str(folder.parent / "config.json"), "--on", "1xh100", "--seq", "16", "--device", "cpu", "--every", "1",
        "--global-batch", "4", "--checkpoints", str(folder), *words,
    ])  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "kept"
    (folder.parent / "config.json").write_text(json.dumps(TINY))
    assert run(folder, "--steps", "3") == 0
    return folder


@pytest.fixture
def folder(written, tmp_path, capsys):
    shutil.copytree(written.parent, tmp_path / "copy")
    capsys.readouterr()
    return tmp_path / "copy" / "kept"


@pytest.mark.parametrize("kind", RESEALED)
def test_it_is_refused_by_name_and_the_one_before_is_taken(kind: str, folder, capsys) -> None:
    RESEALED[kind](folder / NEWEST)
    assert main(["checkpoints", str(folder), "--verify", "--json"]) == 1
    rows = {row["name"]: row["damage"] for row in json.loads(capsys.readouterr().out)["checkpoints"]}
    assert NAMED[kind] in rows.pop(NEWEST)
    assert set(rows.values()) == {None}
    assert run(folder, "--steps", "4") == 0
    told = capsys.readouterr().err
    assert told.count(f"{NEWEST} is damaged: ") == 1
    assert NAMED[kind] in told
    assert "resumed after step 2" in told
    assert (folder / f"{NEWEST}.aside-1").is_dir(), "nothing is deleted"


@pytest.mark.parametrize(
    ("of", "named"),
    [
        ({"model": {}}, "cannot be read"),
        ({"model": [1]}, "cannot be read"),
        ({"optimizer": {"name": "sgd"}}, "exp_avg.embedding.token.weight is not of"),
        ({"optimizer": {"name": ["adamw"]}}, "cannot be read"),
        ({"batch": {"precision": "bf16-pure"}}, "bfloat16"),
        ({"batch": {"precision": "none"}}, "cannot be read"),
        ({"sync": "local-sgd"}, ""),
    ],
)
def test_it_is_what_it_says_it_is_of(of: dict, named: str, folder) -> None:
    manifest, pieces = pieces_of(folder / NEWEST)
    seal(folder / NEWEST, msgspec.structs.replace(manifest, of={**manifest.of, **of}), pieces)
    if not named:
        present(folder / NEWEST)
        return
    with pytest.raises(DamagedCheckpoint, match=named):
        present(folder / NEWEST)


def test_one_that_states_no_model_is_said_to(folder, capsys) -> None:
    """Every tensor of a layer may be gone: nobody knows, but the run that loads it."""
    manifest, pieces = pieces_of(folder / NEWEST)
    left = [piece for piece in pieces if "layers.1." not in piece[0].tensor]
    tensors = {name: form for name, form in manifest.tensors.items() if "layers.1." not in name}
    seal(folder / NEWEST, msgspec.structs.replace(manifest, of={}, tensors=tensors), left)
    assert main(["checkpoints", str(folder), "--verify"]) == 0
    assert " ".join(capsys.readouterr().out.split()).count("states no model") == 1
    assert run(folder, "--steps", "4") == 0
    told = capsys.readouterr().err
    assert f"{NEWEST} is damaged: " in told
    assert "is missing, which this run has" in told
    assert "resumed after step 2" in told


def test_by_force_in_another_precision(folder, capsys) -> None:
    """What it states is what it is: numbers of another dtype are converted. Of another shape they are not."""
    assert run(folder, "--steps", "4", "--precision", "bf16-pure") == 2
    assert "batch.precision was 'fp32'" in capsys.readouterr().err
    assert run(folder, "--steps", "4", "--precision", "bf16-pure", "--force") == 0
    assert "resumed after step 3" in capsys.readouterr().err
    config = folder.parent / "config.json"
    config.write_text(json.dumps({**TINY, "intermediate_size": 64}))
    assert run(folder, "--steps", "5", "--force") == 2
    assert "step-00000004 does not fit this run (" in capsys.readouterr().err


def test_workers_that_differ_are_all_there(folder) -> None:
    manifest, pieces = pieces_of(folder / NEWEST)

    def of_workers(*numbers: int, left: str = "") -> None:
        tensors = {f"worker {n}.{name}": form for n in numbers for name, form in manifest.tensors.items()}
        tensors = {name: form for name, form in tensors.items() if name != left} | {"sync.0.0.x": form_of_none}
        kept = [
            (msgspec.structs.replace(block, tensor=f"worker {n}.{block.tensor}"), content)
            for n in numbers for block, content in pieces if f"worker {n}.{block.tensor}" != left
        ]  # fmt: skip
        stated = msgspec.structs.replace(manifest, of={**manifest.of, "sync": "local-sgd"}, tensors=tensors)
        seal(folder / NEWEST, stated, kept)

    form_of_none = msgspec.structs.replace(manifest.tensors["parameter.head.final_norm.weight"], shape=(0,))
    of_workers(0, 1)
    present(folder / NEWEST)
    of_workers(0, 2)
    with pytest.raises(DamagedCheckpoint, match="every tensor of worker 1 is missing"):
        present(folder / NEWEST)
    of_workers(0, 1, left="worker 1.parameter.head.final_norm.weight")
    with pytest.raises(DamagedCheckpoint, match=r"worker 1\.parameter\.head\.final_norm\.weight is missing"):
        present(folder / NEWEST)


@pytest.mark.parametrize("model", [LLAMA, GPT, *MODELS.values()], ids=lambda model: model.name)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd-m", "sgd"])
def test_the_names_are_those_of_the_runtime(model, optimizer: str) -> None:
    """What a manifest must hold is worked out without torch, and is what torch's engine saves."""
    for precision in ("fp32", "bf16", "bf16-pure"):
        task, settings = task_of(model, Policy(zero=0), precision), OptimizerSettings(name=optimizer)
        order = TrainingOrder(task=task, settings=TrainingSettings(optimizer=settings))
        of = json.loads(msgspec.json.encode(identity_of(order, trained_on(order))))
        assert stated_forms(of) == forms_of(TrainingEngine(task, torch.device("cpu"), settings))


def test_numbers_that_lie(folder) -> None:
    manifest, _ = pieces_of(folder / NEWEST)
    block = manifest.blocks[0]
    huge = {name: msgspec.structs.replace(form, shape=(2**70, 0)) for name, form in manifest.tensors.items()}
    deep = {name: msgspec.structs.replace(form, shape=(1,) * 40) for name, form in manifest.tensors.items()}
    empty = msgspec.structs.replace(block, sizes=(0,) * len(block.sizes), bytes=0)
    wrong = [
        {"tensors": huge}, {"tensors": deep}, {"step": 2**70}, {"step": 2}, {"blocks": (empty, *manifest.blocks)},
        {"blocks": (msgspec.structs.replace(block, at=-4), *manifest.blocks[1:])},
        {"blocks": (msgspec.structs.replace(block, bytes=2**70), *manifest.blocks[1:])},
        {"blocks": (msgspec.structs.replace(block, offsets=(2**63, 0)), *manifest.blocks[1:])},
        {"files": {**manifest.files, "rank-00000.bin": -1}}, {"files": {**manifest.files, "../step-00000002/x": 0}},
    ]  # fmt: skip
    for change in wrong:
        write_manifest(folder / NEWEST, msgspec.structs.replace(manifest, **change))
        with pytest.raises(DamagedCheckpoint):
            present(folder / NEWEST)


def test_two_names_of_one_step(folder, capsys) -> None:
    """The one that no run writes is not taken."""
    shutil.copytree(folder / NEWEST, folder / "step-000000003")
    assert newest(folder).name == NEWEST
    assert run(folder, "--steps", "4") == 0
    assert "resumed after step 3" in capsys.readouterr().err


@pytest.fixture
def no_number(monkeypatch):
    """The loss of every step is NaN."""
    accumulate = TrainingEngine.accumulate
    monkeypatch.setattr(TrainingEngine, "accumulate", lambda engine, batch: accumulate(engine, batch) * float("nan"))


@pytest.mark.usefixtures("no_number")
def test_one_whose_first_step_is_no_number_is_passed_over(folder, capsys) -> None:
    assert run(folder, "--steps", "4") == 1
    told = capsys.readouterr().err
    assert f"{NEWEST} is passed over from the next start on: the loss of its first step, 4, is nan" in told
    assert "the last checkpoint is of step 2" in told
    assert run(folder, "--steps", "4") == 1
    told = capsys.readouterr().err
    assert sum(f"{NEWEST} is passed over: " in line for line in told.splitlines()) == 1
    assert "resumed after step 2" in told
    assert prune(folder, 1) == []
    assert len(found_in(folder)) == 3, "none is deleted"
    assert main(["checkpoints", str(folder), "--keep", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["deleted"] == []


def test_one_that_is_marked_is_taken_again_when_the_mark_is_deleted(folder, capsys) -> None:
    for content in (b'{"why": "the loss was nan\\u001b[31m"}', b"\xff", b""):
        (folder / NEWEST / MARK).write_bytes(content)
        assert newest(folder).name == "step-00000002"
    (folder / NEWEST / MARK).unlink()
    assert run(folder, "--steps", "4") == 0
    assert "resumed after step 3" in capsys.readouterr().err
