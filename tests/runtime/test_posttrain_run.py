"""Post-training for real, on gloo ranks: every layout trains alike, sends what is predicted, and survives kills."""

import shutil
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from msgspec.structs import replace  # noqa: E402
from training import GPT, MODELS, MOE, shaped, task_of  # noqa: E402

from shardwise.run.runtime.launch import launch  # noqa: E402
from shardwise.run.runtime.ranks import RanksFailed  # noqa: E402
from shardwise.run.runtime.rollout.engine import AnsweringEngine  # noqa: E402
from shardwise.run.runtime.rollout.objective import advantages, token_weights  # noqa: E402
from shardwise.run.runtime.rollout.order import RolloutOrder  # noqa: E402
from shardwise.run.runtime.rollout.reshard import HeldBlocks, WeightBlock, moves_of  # noqa: E402
from shardwise.run.runtime.rollout.rewards import REWARDS  # noqa: E402
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

SMALL = shaped("small", layers=2, hidden=32, heads=4, kv_heads=2, ffn=96, vocab=128)
ANSWERS, SEQ, GROUP = 8, 12, 4


def task(policy: Policy, model=SMALL, answers: int = ANSWERS) -> Task:
    found = task_of(model, policy)
    return replace(found, job=replace(found.job, seq=SEQ, global_batch=answers))


def trained(policy: Policy, rollout: RolloutOrder, steps: int = 3, model=SMALL, answers: int = ANSWERS, **settings):
    order = TrainingOrder(
        task=task(policy, model, answers), rollout=rollout,
        settings=TrainingSettings(steps=steps, rate=5e-3, progress="none", timeout_s=60, **settings),
    )  # fmt: skip
    result = launch(order)
    assert result.code == 0, result.text()
    return result.lines


def rolls(**more) -> RolloutOrder:
    return RolloutOrder(**{"group": GROUP, "prompt_tokens": 4, "reward": "short", **more})


LAYOUTS = {
    "together, engines of 2": (Policy(dp=2), rolls(tp=2)),
    "tp 2 to engines of 1": (Policy(tp=2), rolls(ranks=2)),
    "pp 2 to an engine of 2": (Policy(pp=2, micro_batch=2), rolls(ranks=2, tp=2)),
    "zero 3 to one engine": (Policy(dp=2, zero=3), rolls(ranks=1)),
    "zero 3 together": (Policy(dp=2, zero=3), rolls(tp=2)),
    "cp 2 together": (Policy(cp=2, zero=1), rolls()),
    "tp 2, pp 2 together, engines of 4 with copied heads": (Policy(tp=2, pp=2, micro_batch=2), rolls(tp=4)),
}


@pytest.fixture(scope="module")
def alone():
    return trained(Policy(), rolls())


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_trains_alike_and_sends_what_is_predicted(name: str, alone) -> None:
    for line, one in zip(trained(*LAYOUTS[name]), alone, strict=True):
        assert line.rollout.reward == pytest.approx(one.rollout.reward, abs=1e-9)
        assert line.loss == pytest.approx(one.loss, abs=2e-5)
        assert line.grad_norm == pytest.approx(one.grad_norm, rel=2e-4)
        assert line.rollout.bytes == line.rollout.expected_bytes
        assert line.rollout.bytes["update"] > 0


@pytest.mark.parametrize("model", [GPT, MOE, MODELS["mla"]], ids=lambda model: model.name)
def test_other_models_send_what_is_predicted(model) -> None:
    lines = trained(Policy(dp=2, zero=1), rolls(ranks=1, lag=1), steps=2, model=model)
    assert all(line.rollout.bytes == line.rollout.expected_bytes for line in lines)
    assert lines[0].rollout.bytes["weight sync"] > 0


def test_experts_on_other_ranks_travel_too() -> None:
    lines = trained(Policy(dp=2, ep=2), rolls(), steps=1, model=MOE)
    line = lines[0].rollout
    assert line.bytes == line.expected_bytes
    assert line.bytes["weight sync"] > 0


def test_answers_are_older_by_the_lag() -> None:
    lines = trained(Policy(), rolls(ranks=1, lag=2), steps=5)
    assert [line.rollout.age for line in lines] == [0, 1, 2, 2, 2]
    on_policy = trained(Policy(), rolls(), steps=5)
    assert lines[0].rollout.reward == on_policy[0].rollout.reward
    assert on_policy[-1].rollout.clipped == 0.0


def test_the_reward_rises() -> None:
    lines = trained(Policy(micro_batch=32), rolls(group=8, reward="digits"), steps=25, answers=32)
    first, last = (sum(line.rollout.reward for line in part) / 5 for part in (lines[:5], lines[-5:]))
    assert last > first + 0.2


def test_the_engine_knows_the_probabilities_that_the_trainer_computes() -> None:
    """Token by token with a cache, or whole sequences at once."""
    given = task(Policy())
    engine = AnsweringEngine(given, rolls(), torch.device("cpu"))
    prompts = torch.randint(1, 128, (40, 4), generator=torch.Generator().manual_seed(1))
    found = engine.answer(prompts, range(40), step=0)
    assert found.lengths.min() < found.lengths.max() == SEQ - 4
    engine.cache.advance(SEQ, torch.device("cpu"))
    with torch.no_grad():
        logits = engine.chunk.head.logits(engine.chunk.hidden(found.tokens.t()))
    engine.cache.clear()
    whole = torch.log_softmax(logits, -1)[3:-1].gather(2, found.tokens.t()[4:, :, None])[..., 0].t()
    assert torch.allclose(whole[found.there], found.log_probs[found.there], atol=1e-5)
    assert (found.log_probs[~found.there] == 0).all()
    again = engine.answer(prompts[2:4], range(2, 4), step=0)
    assert torch.equal(again.tokens, found.tokens[2:4])


def test_token_weights_are_the_gradient_of_the_clipped_objective() -> None:
    draw = torch.Generator().manual_seed(2)
    advantage = torch.randn(64, generator=draw)
    then = torch.randn(64, generator=draw) - 2
    now = (then + 0.5 * torch.randn(64, generator=draw)).requires_grad_()
    ratio = torch.exp(now - then)
    torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).sum().backward()
    weights, clipped = token_weights(advantage, now.detach(), then, 0.2)
    assert torch.allclose(weights, now.grad, atol=1e-6)
    assert 0 < clipped.sum() < 64


def test_advantages_are_within_groups() -> None:
    rewards = torch.tensor([0.0, 1.0, 2.0, 5.0, 5.0, 5.0], dtype=torch.float64)
    grpo, rloo = (advantages(name, rewards, 3) for name in ("grpo", "rloo"))
    assert grpo.tolist() == pytest.approx([-(1.5**0.5), 0, 1.5**0.5, 0, 0, 0], abs=1e-5)
    assert rloo.tolist() == pytest.approx([-1.5, 0, 1.5, 0, 0, 0])


def test_rewards_count_the_tokens_that_are_there() -> None:
    prompts, answers = torch.tensor([[7, 9]]), torch.tensor([[48, 9, 57, 57]])
    there = torch.tensor([[True, True, True, False]])
    found = {name: float(rule(prompts, answers, there)[0]) for name, rule in REWARDS.items()}
    assert found == pytest.approx({"digits": 2 / 3, "echo": 1 / 3, "short": 0.25})


def test_a_rank_takes_from_itself_before_others() -> None:
    whole, left, right = (WeightBlock("w", (first,), (length,)) for first, length in ((0, 4), (0, 2), (2, 2)))
    moves = moves_of([HeldBlocks(has=(left,), needs=(whole,)), HeldBlocks(has=(right,)), HeldBlocks(has=(left,))])
    assert [(move.source, move.part) for move in moves] == [(0, left), (1, right)]
    with pytest.raises(ValueError, match="same model"):
        moves_of([HeldBlocks(has=(left,), needs=(whole,))])


@pytest.mark.parametrize(
    ("rollout", "policy", "field", "cure"),
    [
        (rolls(group=3), Policy(), "global-batch", "multiple"),
        (rolls(prompt_tokens=12), Policy(), "prompt-tokens", "fewer"),
        (rolls(ranks=3, tp=2), Policy(), "engine-tp", "divisor"),
        (rolls(ranks=4), Policy(), "engine-tp", "another"),
        (rolls(ranks=1), Policy(sync="diloco", dp=2), "sync", "leave"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(rollout, policy, field: str, cure: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: .*{cure}"):
        trained(policy, rollout)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"lag": 1}, "lag"),
        ({"algorithm": "ppo"}, "algorithm"),
        ({"reward": "judge"}, "reward"),
        ({"group": 1}, "group"),
    ],
)
def test_what_is_not_run_is_refused(more: dict, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        rolls(**more)


def test_a_resumed_run_is_bit_for_bit(tmp_path, capfd) -> None:
    """With a lag, answers that wait are part of the checkpoint; other ranks that roll out differ by rounding alone."""
    rollout = rolls(ranks=2, lag=2)
    straight = trained(Policy(), rollout, steps=6)
    trained(Policy(), rollout, steps=3, checkpoints=str(tmp_path / "ck"))
    shutil.copytree(tmp_path / "ck", tmp_path / "copy")
    resumed = trained(Policy(), rollout, steps=6, checkpoints=str(tmp_path / "ck"))
    assert [line.loss for line in resumed] == [line.loss for line in straight[3:]]
    assert [line.rollout.age for line in resumed] == [2, 2, 2]
    other = trained(Policy(), replace(rollout, ranks=1), steps=6, checkpoints=str(tmp_path / "copy"))
    assert [line.loss for line in other] == pytest.approx([line.loss for line in resumed], abs=1e-5)
    with pytest.raises(RanksFailed) as stopped:
        trained(Policy(), replace(rollout, lag=1), steps=7, checkpoints=str(tmp_path / "ck"))
    assert stopped.value.code == 2
    assert "rollout.lag was 2, is 1" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(("layout", "victims"), [("grpo, lag 2", (0, 2)), ("grpo together", (1,))])
def test_killed_ranks_lose_nothing(tmp_path, capsys, layout: str, victims) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import kills
    from _kills_runs import restarted_and, steps_made

    bench = kills.KillBench(tmp_path, seed=3)
    wanted, run = bench.quiet_run(layout), bench.fresh(layout, "--max-restarts", str(len(victims)))
    run.start()
    for number, victim in enumerate(victims):
        moment = steps_made(3 + number)
        assert run.kill_when(restarted_and(moment) if number else moment, victim)
    bench.judge(run, wanted, layout)
    told = capsys.readouterr().err
    assert (bench.tally.kills, bench.tally.bitwise_equal) == (len(victims), 1), told
    assert (bench.tally.orphans, bench.tally.leftovers) == (0, 0), told
