"""What was not written so is not read so: every bit counts, the one before is taken, nothing is deleted or executed."""

import hashlib
import os
import random
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from threading import Timer

import msgspec
import pytest

pytestmark = pytest.mark.xdist_group("damage")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from training import GPT, LLAMA, RATE, batch_for, task_of  # noqa: E402

from _kills_damage import KINDS, flip, some_bits  # noqa: E402
from shardwise.run.runtime.checkpoints.agree import AgreedRefusal, Agreement  # noqa: E402
from shardwise.run.runtime.checkpoints.check import check_bytes  # noqa: E402
from shardwise.run.runtime.checkpoints.folder import found_in, newest, prune  # noqa: E402
from shardwise.run.runtime.checkpoints.manifest import (  # noqa: E402
    NAME,
    DamagedCheckpoint,
    read_manifest,
    write_manifest,
)
from shardwise.run.runtime.checkpoints.resume import resume  # noqa: E402
from shardwise.run.runtime.checkpoints.save import CheckpointSaver, save  # noqa: E402
from shardwise.run.runtime.checkpoints.seen import check_shared  # noqa: E402
from shardwise.run.runtime.checkpoints.state import load  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.quiet import quiet  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

WAIT = timedelta(seconds=60)


def engine_of(model=GPT, policy: Policy | None = None) -> TrainingEngine:
    return TrainingEngine(task_of(model, policy or Policy(zero=0)), torch.device("cpu"), OptimizerSettings())


def trained(engine: TrainingEngine, first: int, end: int) -> None:
    for step in range(first, end):
        engine.accumulate(batch_for(engine, step))
        engine.update(RATE)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Checkpoints of steps 1 and 2, and the numbers of step 1."""
    folder = tmp_path_factory.mktemp("written")
    engine = engine_of()
    trained(engine, 0, 1)
    save(engine, folder, 1)
    first = [local.tensor.clone() for local in engine.locals()]
    trained(engine, 1, 2)
    save(engine, folder, 2)
    return folder, first


@pytest.fixture
def folder(written, tmp_path):
    shutil.copytree(written[0], tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_before_is_taken(kind: str, folder, written, capsys) -> None:
    engine = engine_of()
    KINDS[kind](folder / "step-00000002")
    with quiet():
        assert resume(engine, folder, {}, Agreement(WAIT)).name == "step-00000001"
    assert "step-00000002 is damaged: " in capsys.readouterr().err
    for local, right in zip(engine.locals(), written[1], strict=True):
        assert torch.equal(local.tensor, right)
    assert len(found_in(folder)) == 2
    assert not list(folder.parent.glob("*.executed"))


def test_no_one_before(folder) -> None:
    for path in found_in(folder):
        (path / NAME).unlink()
    with pytest.raises(AgreedRefusal, match=r"none of 2 .*step-00000002: it has no manifest.json.*another folder"):
        resume(engine_of(), folder, {}, Agreement(WAIT))


def test_every_bit_counts(folder) -> None:
    path, engine = folder / "step-00000002", engine_of()
    for number, (file, bit) in enumerate(some_bits(path, 60, random.Random(1))):
        flip(file, bit)
        with pytest.raises(DamagedCheckpoint), quiet():
            check_bytes(path) if number // 2 % 2 else load(engine, path)
        flip(file, bit)
    check_bytes(path)


def test_ranks_agree_though_one_of_them_sees_the_damage(tmp_path, capfd) -> None:
    """The second rank reads the damaged part alone; both go back."""

    def work(rank: int) -> tuple[str, float]:
        engine = engine_of(LLAMA, Policy(dp=2, zero=1))
        agreed = Agreement(WAIT)
        saver = CheckpointSaver(engine, tmp_path, agreed)
        for step in (1, 2):
            trained(engine, step - 1, step)
            saver.save(step)
        saver.wait()
        agreed.meet()
        if rank == 1:
            flip(tmp_path / "step-00000002" / "rank-00001.bin", 77)
        agreed.meet()
        name = resume(engine, tmp_path, {}, agreed).name
        return name, float(sum(local.tensor.double().sum() for local in engine.locals()))

    assert [name for name, _ in forked(2, work)] == ["step-00000001"] * 2
    assert capfd.readouterr().err.count("step-00000002 is damaged: rank-00001.bin: the bytes of") == 1


@pytest.mark.parametrize(("arrives", "taken"), [(True, "step-00000002"), (False, "step-00000001")])
def test_a_rank_that_sees_the_folder_late(arrives: bool, taken: str, folder, tmp_path, capfd) -> None:
    """It waits for what the first rank has chosen; if that does not come, both take the one before."""
    late = tmp_path / "late"
    shutil.copytree(folder, late)
    shutil.move(late / "step-00000002", tmp_path / "under way")

    def work(rank: int) -> str:
        agreed = Agreement(timedelta(seconds=4))
        if arrives and rank == 1:
            Timer(0.5, lambda: shutil.move(tmp_path / "under way", late / "step-00000002")).start()
        engine = engine_of(policy=Policy(dp=2, zero=1))
        return resume(engine, late if rank else folder, {}, agreed).name

    assert forked(2, work) == [taken] * 2
    assert ("on rank 1 manifest.json is not to be seen" in capfd.readouterr().err) is not arrives


def test_a_manifest_of_someone_else_leads_nowhere(folder) -> None:
    """Its checksum is right, since anyone can make one."""
    path = folder / "step-00000002"
    manifest, _ = read_manifest(path)
    block = manifest.blocks[0]
    wrong = [
        {"files": {"../secret": 4}}, {"files": {NAME: 4}}, {"step": -1}, {"form": "other"}, {"files": {}},
        {"blocks": manifest.blocks[1:]}, {"tensors": {}},
        {"blocks": (msgspec.structs.replace(block, sizes=(1 << 40,)), *manifest.blocks[1:])},
        {"blocks": (msgspec.structs.replace(block, offsets=tuple(-1 for _ in block.offsets)), *manifest.blocks[1:])},
        {"tensors": {**manifest.tensors, block.tensor: {"dtype": "system", "shape": [4]}}},
    ]  # fmt: skip
    for change in wrong:
        write_manifest(path, msgspec.structs.replace(manifest, **change))
        with pytest.raises(DamagedCheckpoint, match=NAME):
            read_manifest(path)


def hostile(path: Path, kind: str) -> None:
    """A checkpoint of a stranger, with a manifest that has its checksum."""
    manifest, size = path / NAME, 2**42
    if kind in ("pipe", "device"):
        manifest.unlink()
        os.mkfifo(manifest) if kind == "pipe" else manifest.symlink_to("/dev/zero")
        return
    nested = b"[" * 50_000 + b"]" * 50_000 if kind == "nested" else b"{}"
    part = {"empty pipe": 0, "sparse": size}.get(kind)
    block = {"tensor": "t", "offsets": [0], "sizes": [part], "file": "p", "at": 0, "bytes": part, "sha256": "0"}
    inside = msgspec.json.encode({
        "form": "shardwise checkpoint 1", "step": 2, "saved": "", "ranks": 1, "of": {"a": msgspec.Raw(nested)},
        "tensors": {"t": {"dtype": "uint8", "shape": [part]}} if part is not None else {},
        "files": {"p": part} if part is not None else {}, "blocks": [block] if part is not None else [],
    })  # fmt: skip
    sealed = {"sha256": hashlib.sha256(inside).hexdigest(), "manifest": msgspec.Raw(inside)}
    manifest.write_bytes(msgspec.json.encode(sealed))
    if kind == "empty pipe":
        os.mkfifo(path / "p")
    elif kind == "sparse":
        with (path / "p").open("wb") as file:
            file.truncate(size)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("pipe", "not an ordinary file"), ("device", "not an ordinary file"), ("nested", "not a manifest"),
     ("empty pipe", "p is not an ordinary file")],
)  # fmt: skip
def test_what_never_ends_is_not_read(kind: str, told: str, folder) -> None:
    hostile(folder / "step-00000002", kind)
    with pytest.raises(DamagedCheckpoint, match=told):
        check_bytes(folder / "step-00000002")
    assert newest(folder).name == "step-00000001"


def test_bytes_are_compared_a_piece_at_a_time(folder, monkeypatch) -> None:
    """Of a file that says it is larger than any memory: nothing of its size is asked for."""
    hostile(folder / "step-00000002", "sparse")
    read = []

    def told(size: int) -> None:
        read.append(size)
        if len(read) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("shardwise.run.runtime.checkpoints.check.PIECE", 1 << 12)
    with pytest.raises(KeyboardInterrupt):
        check_bytes(folder / "step-00000002", told)
    assert read == [1 << 12] * 3


def test_a_name_that_is_taken_is_set_aside(folder) -> None:
    """By something damaged: it may still be worth looking at."""
    engine = engine_of()
    (folder / "step-00000002" / NAME).write_bytes(b"")
    for number in (1, 2):
        save(engine, folder, 2)
        assert (folder / f"step-00000002.aside-{number}").is_dir()
    assert newest(folder).name == "step-00000002"


def test_old_ones_go_and_damaged_ones_stay(folder) -> None:
    engine = engine_of()
    for step in (3, 4, 5):
        save(engine, folder, step)
    (folder / "step-00000004" / NAME).unlink()
    assert prune(folder, 2) == ["step-00000002", "step-00000001"]
    assert [path.name for path in found_in(folder)] == [f"step-0000000{n}" for n in (5, 4, 3)]


def test_a_folder_that_is_not_shared_is_found(tmp_path) -> None:
    def work(rank: int) -> str:
        agreed = Agreement(timedelta(seconds=4))
        check_shared(tmp_path, agreed)
        try:
            check_shared(tmp_path / str(rank), agreed)
        except AgreedRefusal as refusal:
            return str(refusal)
        return ""

    told = forked(2, work)
    assert all("is not the same folder on all ranks (rank 0: the file that rank 1 wrote" in text for text in told)
    assert not list(tmp_path.rglob(".*"))


def test_a_folder_one_rank_cannot_write_is_found(tmp_path) -> None:
    (tmp_path / "1").write_text("a file")

    def work(rank: int) -> str:
        try:
            check_shared(tmp_path / str(rank), Agreement(WAIT))
        except AgreedRefusal as refusal:
            return str(refusal)
        return ""

    assert all("cannot be written by rank 1 (File exists)" in text for text in forked(2, work))


def test_a_part_that_does_not_arrive_is_no_checkpoint(tmp_path, monkeypatch) -> None:
    """The other rank's file is not to be seen when the step would get its name."""

    def lost(folder: Path, step: int) -> Path:
        here = folder / f".step-{step:08}"
        return here / "elsewhere" if torch.distributed.get_rank() else here

    def work(_: int) -> str:
        monkeypatch.setattr("shardwise.run.runtime.checkpoints.storage.beside", lost)
        engine = engine_of(LLAMA, Policy(dp=2, zero=1))
        saver = CheckpointSaver(engine, tmp_path, Agreement(WAIT), in_background=False)
        saver.save(1)
        return saver.failed

    # whichever rank looks first names it: the owner of the missing part, or the one that gathers them
    told = forked(2, work)
    assert told[0] == told[1]
    assert told[0].startswith("checkpoint of step 1: ")
    assert "rank-00001.bin is missing (rank 0)" in told[0] or "No such file or directory (rank 1)" in told[0]
    assert found_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
