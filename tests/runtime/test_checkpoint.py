"""A checkpoint resumes the run bit for bit, in any other layout to rounding, and is whole or not there."""

from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("checkpoint")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch")
from training import GPT, MOE, RATE, batch_for, task_of  # noqa: E402

from shardwise.run.runtime.checkpoints.agree import Agreement  # noqa: E402
from shardwise.run.runtime.checkpoints.folder import newest, present  # noqa: E402
from shardwise.run.runtime.checkpoints.save import CheckpointSaver, save  # noqa: E402
from shardwise.run.runtime.checkpoints.state import load  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.parts import rectangles  # noqa: E402
from shardwise.run.runtime.train.quiet import quiet  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

BEFORE, AFTER = 2, 4
WAIT = timedelta(seconds=60)
LAYOUTS = {
    "the same": Policy(dp=2, tp=2, zero=1),
    "zero 3": Policy(dp=4, zero=3),
    "stages": Policy(pp=2, dp=2, zero=0),
    "zero 2": Policy(dp=4, zero=2),
    "zero 3 x tp": Policy(dp=2, tp=2, zero=3),
}


ADAMW = OptimizerSettings()


def run(
    policy: Policy, steps: int, *, start: Path | None = None, end: Path | None = None, model: Model = GPT,
    settings: OptimizerSettings = ADAMW,
) -> list[float]:  # fmt: skip
    engine = TrainingEngine(task_of(model, policy), torch.device("cpu"), settings)
    first = 0 if start is None else load(engine, start)
    losses = []
    for step in range(first, steps):
        part = engine.accumulate(batch_for(engine, step)).double() / engine.world.tp.size
        losses.append(float(engine.world.comm.all_reduce(part, engine.world.everyone)))
        engine.update(RATE)
    if end is not None:
        save(engine, end, steps)
    return losses


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """Losses of an unbroken run, and of runs of each layout that go on from each other's checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def work(_: int):
        whole = run(LAYOUTS["the same"], AFTER)
        found = {}
        for name in ("the same", "zero 3"):
            run(LAYOUTS[name], BEFORE, end=folder / name.replace(" ", "-"))
        for name, policy in LAYOUTS.items():
            found["the same", name] = run(policy, AFTER, start=newest(folder / "the-same"))
        found["zero 3", "stages"] = run(LAYOUTS["stages"], AFTER, start=newest(folder / "zero-3"))
        return whole, found

    return forked(4, work)[0]


def test_bit_for_bit(resumed) -> None:
    whole, found = resumed
    assert found["the same", "the same"] == whole[BEFORE:]


def test_other_layouts(resumed) -> None:
    whole, found = resumed
    for losses in found.values():
        assert losses == pytest.approx(whole[BEFORE:], abs=1e-5)


def test_momentum_of_matrices_and_moments_of_the_rest(tmp_path) -> None:
    """Muon keeps one for every matrix, each expert by itself, and AdamW two for the others."""
    settings = OptimizerSettings(name="muon")

    def work(_: int) -> tuple[list[float], list[float]]:
        policy = Policy(dp=2, ep=2, zero=0)
        whole = run(policy, AFTER, model=MOE, settings=settings)
        run(policy, BEFORE, end=tmp_path, model=MOE, settings=settings)
        return whole, run(policy, AFTER, start=newest(tmp_path), model=MOE, settings=settings)

    whole, resumed = forked(2, work)[0]
    assert resumed == whole[BEFORE:]
    names = set(present(newest(tmp_path))[0].tensors)
    assert "momentum_buffer.layers.0.expert.up.weight" in names
    assert "exp_avg.layers.0.expert.up.weight" not in names
    assert "exp_avg_sq.layers.0.norm.0.weight" in names


def test_training_goes_on_while_one_is_written(tmp_path) -> None:
    """What is written are the values of its step, not later ones; two under way wait for each other."""

    def work(_: int) -> list[list[float]]:
        task, found = task_of(GPT, Policy(dp=2, zero=1)), []
        for start in (None, 1, 2):
            engine = TrainingEngine(task, torch.device("cpu"), OptimizerSettings())
            first = 0 if start is None else load(engine, tmp_path / f"step-{start:08}")
            saved = CheckpointSaver(engine, tmp_path, Agreement(WAIT)) if start is None else None
            losses = []
            for step in range(first, AFTER):
                part = engine.accumulate(batch_for(engine, step)).double()
                losses.append(float(engine.world.comm.all_reduce(part, engine.world.everyone)))
                engine.update(RATE)
                if saved is not None:
                    saved.save(step + 1)
            if saved is not None:
                saved.wait()
                assert newest(tmp_path).name == f"step-{AFTER:08}"
            found.append(losses)
        return found

    whole, *resumed = forked(2, work)[0]
    assert resumed == [whole[1:], whole[2:]]
    assert not list(tmp_path.glob(".*"))


def test_what_cannot_be_written_is_told(tmp_path, capsys) -> None:
    engine = TrainingEngine(task_of(GPT, Policy(zero=0)), torch.device("cpu"), OptimizerSettings())
    (tmp_path / "file").write_text("")
    saved = CheckpointSaver(engine, tmp_path / "file" / "below", Agreement(WAIT))
    with quiet():
        saved.save(1)
        saved.wait()
        assert saved.failed == "checkpoint of step 1: Not a directory (rank 0)"
        assert capsys.readouterr().err.splitlines() == [saved.failed]
        saved.save(2)
        assert "step 1" in saved.failed, "a failure is not forgotten before the run has ended by it"
        saved.go_on = True
        saved.save(2)
        saved.wait()
    assert "step 2" in saved.failed


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 2)])
def test_rectangles_are_the_run(shape: tuple) -> None:
    whole = torch.arange(12).view(shape)
    for first, count in product(range(12), range(13)):
        if first + count <= 12:
            blocks = [
                whole[tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))].flatten()
                for offsets, sizes in rectangles(shape, first, count)
            ]
            found = torch.cat(blocks).tolist() if blocks else []
            assert found == list(range(first, first + count))


def test_half_written_ones_are_not_seen(tmp_path) -> None:
    (tmp_path / ".step-00000009").mkdir()
    assert newest(tmp_path) is None
    engine = TrainingEngine(task_of(GPT, Policy(zero=0)), torch.device("cpu"), OptimizerSettings())
    for step in (4, 10):
        save(engine, tmp_path, step)
    (tmp_path / "step-00000011").mkdir()
    assert newest(tmp_path).name == "step-00000010"
    assert newest(tmp_path / "nowhere") is None
