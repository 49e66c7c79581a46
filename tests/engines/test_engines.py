"""Shards give the same answers in the same order on every engine, and what was done survives an interruption."""

import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from shardwise.answers._sweep_shards import PointAnswer, PointShard, Refusal, answered, solve, work
from shardwise.plugins.engines import Lost, Setup, engine_of, engines, run
from shardwise.plugins.engines import local as local_engine
from shardwise.question import open_question_of
from shardwise.show.cli import main
from shardwise.spec.load import cluster_of

ROOT = Path(__file__).resolve().parents[2]
SWEEP = [
    "sweep", "llama-3-8b", "gpt2-xl", "--on", "dgx-h100:16", "--on", "dgx-a100:16", "--over", "network=50Gbps:200Gbps",
    "--policy", "best,tp<=2", "--policy", "fsdp", "--seq", "1024", "--json",
]  # fmt: skip
CLUSTER_ENGINES = [name for name in engines() if engines()[name].module]


@pytest.fixture(scope="module")
def shards():
    case = open_question_of("llama-3-8b", "8xh100", seq=2048, global_batch=64)
    cluster = cluster_of("8xh100")
    return [PointShard(case, cluster, text) for text in ("tp=1", "tp=2", "tp=8", "tp=3", "fsdp", "tp=4,micro=2")]


def sent(shards):
    return [msgspec.msgpack.encode(shard) for shard in shards]


def test_a_shard_survives_the_wire(shards):
    for shard in shards:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(shard), type=PointShard) == shard
        assert msgspec.msgpack.decode(work(msgspec.msgpack.encode(shard)), type=PointAnswer) == solve(shard)


def test_one_process_and_two_give_the_same_in_the_same_order(shards):
    told = []
    one = run(engine_of("local"), work, sent(shards), Setup(jobs=1), lambda done, of: told.append((done, of)))
    two = run(engine_of("local"), work, sent(shards), Setup(jobs=2))
    assert one == two
    assert told == [(i + 1, len(shards)) for i in range(len(shards))]
    steps = [None if answer.report is None else answer.report.policy.tp for answer in map(decoded, one)]
    assert steps == [1, 2, 8, None, 1, 4]


def decoded(answer):
    return msgspec.msgpack.decode(answer, type=PointAnswer)


def test_processes_start_only_where_they_pay(shards, monkeypatch):
    started = []

    def pooled(work_, shards_, places, processes):
        started.append((places, processes))
        for place in places:
            yield place, work_(shards_[place])

    monkeypatch.setattr(local_engine, "_pooled", pooled)
    monkeypatch.setattr(local_engine, "cores", lambda: 4)
    quick = run(engine_of("local"), work, sent(shards), Setup())
    assert started == []
    monkeypatch.setattr(local_engine, "WORTH_S", 0.0)
    assert run(engine_of("local"), work, sent(shards), Setup()) == quick
    assert started == [(range(1, len(shards)), 4)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interruption_leaves_what_was_done(shards, jobs):
    def interrupt(done, _):
        if done == 2:
            raise KeyboardInterrupt

    answers = run(engine_of("local"), work, sent(shards), Setup(jobs=jobs), interrupt)
    kept = [(place, answer) for place, answer in enumerate(answers) if answer is not None]
    assert len(kept) == 2
    for place, answer in kept:
        assert decoded(answer) == solve(shards[place])


def test_what_a_shard_refuses_is_the_users_mistake(shards):
    bad = [shards[0], PointShard(shards[0].case, shards[0].cluster, "tpp=8")]
    with pytest.raises(ValueError, match="policy: 'tpp' is not a field; did you mean 'tp'"):
        answered(bad, engine_of("local"), Setup(jobs=1))
    assert isinstance(msgspec.msgpack.decode(work(sent(bad)[1]), type=PointAnswer | Refusal), Refusal)


@pytest.mark.parametrize("name", CLUSTER_ENGINES)
def test_a_missing_engine_says_what_to_install(name, shards, monkeypatch):
    monkeypatch.setitem(sys.modules, engines()[name].module, None)
    with pytest.raises(ValueError, match=rf"^engine: {name} is not here, .*pip install 'shardwise\[{name}\]'$"):
        run(engine_of(name), work, sent(shards), Setup())


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match=r"engine: 'rai' is unknown; did you mean 'ray'\?"):
        engine_of("rai")


def shardwise(*words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-m", "shardwise", *words], env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", *CLUSTER_ENGINES])
def test_a_sweep_is_the_same_on_every_engine(name):
    """Local with two processes against one; cluster engines where they are installed (each starts its own here)."""
    engine = engines()[name]
    if engine.module and importlib.util.find_spec(engine.module) is None:
        pytest.skip(f"{name} is not installed: pip install '{engine.install}'")
    alone = shardwise(*SWEEP, "--jobs", "1")
    other = shardwise(*SWEEP, *(["--jobs", "2"] if name == "local" else ["--engine", name]))
    assert alone.returncode == other.returncode == 0, other.stderr
    expected, found = (msgspec.json.decode(text.stdout) for text in (alone, other))
    assert found.pop("engine") == name
    assert expected.pop("engine") == "local"
    assert found == expected


@pytest.fixture
def ctrl_c_interrupts():
    """A shell starts its background jobs with Ctrl-C ignored; here it is to be heard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_interrupts")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_prints_the_points_that_were_done(jobs, capsys, monkeypatch):
    def stop_at(count):
        @contextmanager
        def bar(_):
            yield lambda done, _: signal.raise_signal(signal.SIGINT) if done == count else None

        return bar

    words = ["sweep", "llama-3-8b", "--on", "8xh100", "--over", "batch=64:512", "--policy", "fsdp", "--jobs", jobs]
    monkeypatch.setattr("shardwise.show.cli.sweep.bar", stop_at(2))
    assert main([*words, "--json"]) == 130
    found = msgspec.json.decode(capsys.readouterr().out)
    assert len(found["points"]) == 2
    assert found["notes"][-1] == "interrupted: 2 of 4 points were not done"


def dies_on_b(shard):
    if shard == b"b":
        os.kill(os.getpid(), signal.SIGKILL)
    return shard.upper()


def test_a_worker_that_dies_loses_its_own_shard_only():
    found = run(engine_of("local"), dies_on_b, [b"a", b"b", b"c", b"d"], Setup(jobs=2))
    assert found == [b"A", Lost("its process was killed by signal 9"), b"C", b"D"]


def test_a_point_that_is_lost_is_told_and_the_others_are_shown(shards, monkeypatch):
    lost = [Lost("its process was killed by signal 9"), *map(work, sent(shards[1:]))]
    monkeypatch.setattr("shardwise.answers._sweep_shards.run", lambda *_: lost)
    found = answered(shards, engine_of("local"), Setup(jobs=2))
    assert found[0].verdict == "lost: its process was killed by signal 9"
    assert found[1:] == [solve(shard) for shard in shards[1:]]
