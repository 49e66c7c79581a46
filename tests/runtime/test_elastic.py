"""Replicas that are lost change nothing but whose micro-batches a step has: benchmarks/chaos.py, in short."""

import os
import random
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
if sys.platform != "linux":
    pytest.skip("looks into /proc", allow_module_level=True)
from _chaos_runs import Flip, elastic_run, order_for, paced, skipping, weights  # noqa: E402
from shardwise.run.runtime.elastic.checksum import checksum  # noqa: E402
from shardwise.run.runtime.elastic.mean import SealedGradient, SpoiledGradient, ordered_mean  # noqa: E402
from shardwise.run.runtime.elastic.member import ReplicaMember  # noqa: E402
from shardwise.run.runtime.elastic.mesh import PeerGone, PeerMesh  # noqa: E402
from shardwise.run.runtime.elastic.replicas import split_of  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.loop import Trainer  # noqa: E402
from shardwise.show.cli import main  # noqa: E402


def killing(monkeypatch, victims: set[tuple[int, int, int]], later: Path | None = None) -> None:
    """Ranks (replica, place, step) that kill themselves with their gradient ready; with `later` also one of replica 1,
    once everybody is back."""
    tried = ReplicaMember._tried

    def try_(self, turn):
        mine = (self.replica, self.engine.world.rank, turn.step)
        due = mine in victims
        if (
            later
            and mine[:2] == (1, 0)
            and turn.step > 3
            and len(turn.members) == 3
            and not turn.heals
            and not later.exists()
        ):
            later.touch()
            due = True
        if due and self.replica not in turn.heals:
            self._compute(turn.step)
            os.kill(os.getpid(), signal.SIGKILL)
        return tried(self, turn)

    monkeypatch.setattr(ReplicaMember, "_tried", try_)


def skipped(layout: str, run, folder: Path) -> bytes:
    taken = [line.replicas for line in run.result.lines]
    skipping(order_for(layout, len(taken), str(folder)), taken)
    return weights(str(folder))


@pytest.mark.parametrize(("layout", "place"), [("dp 3", 0), ("hsdp 3 x 2", 1)])
def test_survivors_finish_the_step_and_the_lost_replica_rejoins(tmp_path, monkeypatch, layout, place):
    killing(monkeypatch, {(0, place, 2), (2, 0, 2)}, tmp_path / "later")
    with paced(0.1):
        run = elastic_run(order_for(layout, 60, str(tmp_path / "run")), 1)
    taken = [line.replicas for line in run.result.lines]
    assert taken[1:3] == [(0, 1, 2), (1,)], "the one that is left goes on alone"
    assert (0, 2) in taken, "with weights that were a peer's"
    assert taken[-1] == (0, 1, 2)
    assert len(taken) == 60
    assert weights(str(tmp_path / "run")) == skipped(layout, run, tmp_path / "reference")


def test_without_losses_it_is_the_run_that_data_parallelism_makes(tmp_path):
    order = order_for("dp 3, tp 2", 4, str(tmp_path / "run"))
    run = elastic_run(order, 0)

    def losses(_: int) -> list[float]:
        trainer = Trainer(order, torch.device("cpu"))
        return [trainer.one_step().loss for _ in range(4)]

    assert [line.loss for line in run.result.lines] == pytest.approx(forked(6, losses)[0], rel=1e-6)
    assert [line.ranks for line in run.result.lines] == [6] * 4


def test_nobody_is_left(monkeypatch):
    killing(monkeypatch, {(0, 0, 1), (1, 0, 1), (2, 0, 1)})
    with pytest.raises(RuntimeError, match="nobody has the weights"):
        elastic_run(order_for("dp 3", 4, ""), 0)


@pytest.mark.parametrize("kind", ["gradient", "weight", "moment"])
def test_a_flipped_bit_is_named_by_rank(tmp_path, kind):
    flip = Flip(step=3, replica=1, place=1, kind=kind, draw=0.5, bit=30)
    with paced(0.05, [flip]):
        run = elastic_run(order_for("hsdp 3 x 2", 8, str(tmp_path / "run")), 1)
    assert [text for text in run.result.remarks if text.startswith("rank 3, replica 1") and "step 4" in text]
    assert run.result.lines[3].replicas == (0, 2), "what it sent is in no step"
    assert weights(str(tmp_path / "run")) == skipped("hsdp 3 x 2", run, tmp_path / "reference")
    assert [text for text in run.result.remarks if text.startswith("checksums took")]


def test_two_replicas_cannot_outvote_each_other():
    flip = Flip(step=1, replica=1, place=0, kind="weight", draw=0.5, bit=3)
    order = order_for("dp 3", 4, "")
    order = replace(order, task=replace(order.task, policy=replace(order.task.policy, dp=2)))
    with paced(0.0, [flip]), pytest.raises(RuntimeError, match="ranks 0, 1 differ"):
        elastic_run(order, 1)


def test_a_rank_that_stands_still_is_left_away(tmp_path, monkeypatch):
    tried = ReplicaMember._tried

    def try_(self, turn):
        if self.replica == 1 and turn.step == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        return tried(self, turn)

    monkeypatch.setattr(ReplicaMember, "_tried", try_)
    order = order_for("dp 3", 4, str(tmp_path / "run"))
    order = replace(order, settings=replace(order.settings, timeout_s=12.0))
    run = elastic_run(order, 0, restarts=0)
    assert [line.replicas for line in run.result.lines] == [(0, 1, 2)] * 2 + [(0, 2)] * 2
    assert weights(str(tmp_path / "run")) == skipped("dp 3", run, tmp_path / "reference")


def test_one_flipped_bit_changes_a_checksum():
    draw = random.Random(1)
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.uint8):
        tensor = torch.randn(1000).to(dtype)
        before, words = checksum(tensor), tensor.view(torch.uint8)
        for _ in range(50):
            at, bit = draw.randrange(len(words)), 1 << draw.randrange(8)
            words[at] ^= bit
            assert checksum(tensor) != before
            words[at] ^= bit
        assert checksum(tensor) == before


@contextmanager
def meshes(members: int):
    peers = [dict[int, socket.socket]() for _ in range(members)]
    for one in range(members):
        for other in range(one):
            peers[one][other], peers[other][one] = socket.socketpair()
    found = [PeerMesh(each) for each in peers]
    yield found
    for mesh in found:
        mesh.close()


@pytest.mark.parametrize(("members", "length"), [(2, 1), (3, 10), (5, 100_003)])
def test_the_mean_is_added_up_in_order(members, length):
    grads = [torch.randn(length) for _ in range(members)]
    sealed = [SealedGradient([grad]) for grad in grads]
    with meshes(members) as all_of_them, ThreadPoolExecutor(members) as pool:
        jobs = [pool.submit(sealed[i].mean, mesh, list(range(members)), i) for i, mesh in enumerate(all_of_them)]
        found = [job.result(timeout=60) for job in jobs]
    assert all(torch.equal(one, ordered_mean(grads)) for one in found)


def test_a_gradient_that_changed_is_refused_and_a_closed_socket_noticed():
    sealed = [SealedGradient([torch.randn(640)]) for _ in range(2)]
    sealed[1].flat[5] = 7.0
    with meshes(2) as pair, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(one.mean, mesh, [0, 1], i) for i, (one, mesh) in enumerate(zip(sealed, pair, strict=True))]
        with pytest.raises(SpoiledGradient) as spoiled:
            jobs[0].result(timeout=60)
        pair[0].close()
        with pytest.raises(PeerGone):
            jobs[1].result(timeout=60)
    assert spoiled.value.replica == 1


@pytest.mark.parametrize(
    ("words", "field", "cure"),
    [
        (("--dp", "4", "--zero", "1"), "elastic", "--shard-group"),
        (("--tp", "4"), "elastic", "--zero 0"),
        (("--dp", "4", "--zero", "0", "--checkpoints", "ck"), "checkpoints", "leave"),
    ],
)
def test_what_cannot_be_lost_alone_is_refused(tmp_path, monkeypatch, capsys, words, field, cure):
    monkeypatch.chdir(tmp_path)
    plan = str(Path(__file__).resolve().parents[2] / "docs" / "tiny-llama.json")
    code = main(["run", plan, "--on", "4xh100", "--seq", "16", "--global-batch", "4", "--elastic", *words])
    told = capsys.readouterr().err
    assert code == 2
    assert field in told
    assert cure in told


def test_a_replica_takes_its_part_of_the_batch():
    split = split_of(order_for("hsdp 3 x 2", 1, ""))
    assert (split.replicas, split.ranks) == (3, 2)
    assert (split.order.task.policy.zero, split.order.task.policy.shard_group) == (3, 0)
    assert split.order.task.job.global_batch == 4
