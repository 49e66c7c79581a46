"""A strategy across the replicas of a run: the mean gradient written as one trains alike, copies stay equal, a
checkpoint goes on bit for bit."""

import pytest

pytestmark = pytest.mark.xdist_group("run sync")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch")
from msgspec.structs import replace  # noqa: E402
from training import GPT, LLAMA, MOE, RATE, batch_for, task_of  # noqa: E402

from shardwise.run.runtime.checkpoints.save import save  # noqa: E402
from shardwise.run.runtime.checkpoints.state import load  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.task import checked  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

RANKS, STEPS = 4, 3
MEAN = "psgd,via=sharded"
LAYOUTS = {
    "replicas": (LLAMA, Policy(dp=4, zero=0)), "tensor parallel": (LLAMA, Policy(dp=2, tp=2, zero=0)),
    "stages": (GPT, Policy(dp=2, pp=2, zero=0)), "context parallel": (LLAMA, Policy(dp=2, cp=2, zero=0)),
    "shard groups": (LLAMA, Policy(dp=4, zero=1, shard_group=2)),
    "shard groups, ZeRO 2": (LLAMA, Policy(dp=4, zero=2, shard_group=2)),
}  # fmt: skip


def losses_of(engine: TrainingEngine, first: int, end: int) -> list[float]:
    found = []
    for step in range(first, end):
        part = engine.accumulate(batch_for(engine, step)).double() / engine.world.tp.size
        found.append(float(engine.world.comm.all_reduce(part, engine.world.everyone)))
        engine.update(RATE)
    return found


def engine_of(model, policy: Policy, sync: str, clip: float = 0.0) -> TrainingEngine:
    task = task_of(model, replace(policy, sync=sync))
    return TrainingEngine(task, torch.device("cpu"), OptimizerSettings(clip=clip))


@pytest.fixture(scope="module")
def both():
    """Losses with the mean gradient of the runtime, and with the same as a strategy."""

    def work(_: int):
        return {
            name: [losses_of(engine_of(model, policy, sync), 0, STEPS) for sync in ("", MEAN)]
            for name, (model, policy) in LAYOUTS.items()
        }

    return forked(RANKS, work)[0]


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_the_mean_as_a_strategy_trains_alike(both, name):
    plain, strategy = both[name]
    assert strategy == pytest.approx(plain, rel=1e-5)


def test_copies_stay_equal_under_compression():
    """Norms lie whole on every tensor-parallel rank, a tied table on both ends: they are compressed alike."""

    def spread(model, policy: Policy) -> float:
        engine = engine_of(model, policy, "mem_sgd,compressor=top_k,compressor.ratio=0.05")
        losses_of(engine, 0, STEPS)
        worst = 0.0
        for local in engine.locals():
            for span in local.spans:
                piece, group = span.held.piece, None
                if not piece.cuts and policy.tp > 1:
                    group = engine.world.tp
                elif piece.tied and policy.pp > 1:
                    group = engine.world.ends
                if group is not None:
                    mine = local.tensor[span.at : span.at + span.length].clone()
                    total = engine.world.comm.all_reduce(mine.clone(), group)
                    worst = max(worst, float((total / group.size - mine).abs().max()))
        return worst

    cases = [(LLAMA, Policy(dp=2, tp=2, zero=0)), (GPT, Policy(dp=2, pp=2, zero=0))]
    found = forked(RANKS, lambda _: [spread(model, policy) for model, policy in cases])
    assert all(worst < 1e-7 for each in found for worst in each)


@pytest.mark.parametrize("sync", ["diloco,every=2", "mem_sgd", "dsgd"])
def test_a_checkpoint_goes_on_bit_for_bit(sync, tmp_path):
    policy = Policy(dp=4, zero=0)

    def work(_: int):
        whole = losses_of(engine_of(LLAMA, policy, sync, clip=1.0), 0, 4)
        begun = engine_of(LLAMA, policy, sync, clip=1.0)
        losses_of(begun, 0, 2)
        path = save(begun, tmp_path / "kept", 2)
        resumed = engine_of(LLAMA, policy, sync, clip=1.0)
        step = load(resumed, path)
        after = losses_of(resumed, step, 4)
        try:
            load(engine_of(LLAMA, policy, "ef21_sgd"), path)
            refused = ""
        except ValueError as error:
            refused = str(error)
        return whole, after, refused

    whole, after, refused = forked(RANKS, work)[0]
    assert after == whole[2:]
    assert "another --sync" in refused


@pytest.mark.parametrize(
    ("model", "policy", "why"),
    [
        (LLAMA, Policy(dp=4, zero=1, sync="dsgd"), "write --zero 0, or --shard-group N"),
        (LLAMA, Policy(dp=4, zero=3, shard_group=2, sync="dsgd"), "zero 3 cannot be run"),
        (LLAMA, Policy(dp=4, zero=1, shard_group=2, sync="power_sgd"), "factors whole matrices"),
        (LLAMA, Policy(dp=1, tp=4, zero=0, sync="dsgd"), "nobody to talk to"),
        (LLAMA, Policy(dp=4, zero=0, sync="one_bit_adam"), "write --optimizer sgd"),
        (MOE, Policy(dp=4, zero=0, sync="mem_sgd"), "experts cannot be run"),
    ],
)
def test_refused_with_a_reason(model, policy, why):
    with pytest.raises(ValueError, match=why):
        checked(task_of(model, policy))


def test_all_workers_hear_of_a_gradient_that_is_no_number():
    """A worker's norm is its own; that one of them is not finite is everybody's, or some would stop and others wait."""

    def work(rank: int) -> float:
        engine = engine_of(LLAMA, Policy(dp=2, zero=0), "mem_sgd")
        engine.accumulate(batch_for(engine, 0))
        if rank == 1:
            engine.locals()[0].grad.fill_(float("nan"))
        return engine.update(RATE)

    assert all(norm != norm for norm in forked(2, work))
