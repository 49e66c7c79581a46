"""How runs end before their last step: a loss that is no number, a signal, a disk that is full, a killed rank."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.runtime.checkpoints.folder import found_in  # noqa: E402
from shardwise.run.runtime.ranks import run_ranks  # noqa: E402
from shardwise.run.runtime.train.ending import stop_requests  # noqa: E402
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings  # noqa: E402
from shardwise.show.cli import main  # noqa: E402
from shardwise.spec.arch import model_of  # noqa: E402
from shardwise.spec.job import PRECISIONS, Job  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402
from shardwise.spec.software import stack_of  # noqa: E402

ROOT = Path(__file__).parents[2]
TINY = ROOT / "docs" / "tiny-llama.json"
JOB = ["--seq", "16", "--global-batch", "4", "--device", "cpu"]
PATIENCE_S = 100


def in_process(capsys, *words: str) -> tuple[int, dict, str]:
    code = main(["run", str(TINY), "--on", "1xh100", *JOB, *words, "--json"])
    told = capsys.readouterr()
    return code, json.loads(told.out), told.err


def test_a_loss_that_is_no_number(tmp_path, capsys) -> None:
    log, folder = tmp_path / "log", tmp_path / "kept"
    words = ("--steps", "20", "--every", "1", "--rate", "1e20", "--clip", "0", "--checkpoints", str(folder))
    code, found, told = in_process(capsys, *words, "--log", str(log), "--export", str(tmp_path / "out"))
    assert code == 1
    last = found["steps"][-1]
    assert last["loss"] is None
    assert [path.name for path in found_in(folder)] == [f"step-{step['step']:08}" for step in found["steps"][-2::-1]]
    assert found["stopped"].startswith(f"stopped after step {last['step']}: the loss is ")
    assert f"the last checkpoint is of step {last['step'] - 1}" in told
    assert json.loads(log.read_text().splitlines()[-1])["loss"] is None
    assert not (tmp_path / "out").exists()
    assert found["exported"] is None


@pytest.fixture
def small_files():
    """What is longer than this cannot be written, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("how", ["--async-checkpoints", "--no-async-checkpoints"])
@pytest.mark.usefixtures("small_files")
def test_a_save_that_fails_is_said(how: str, tmp_path, capsys) -> None:
    words = ("--steps", "5", "--every", "2", "--checkpoints", str(tmp_path / "kept"), how)
    code, found, told = in_process(capsys, *words)
    assert code == 1
    assert "checkpoint of step 2: File too large (rank 0)" in told.splitlines()
    assert len(found["steps"]) < 5
    assert "there is no checkpoint" in found["stopped"]
    assert list((tmp_path / "kept").iterdir()) == []
    code, found, told = in_process(capsys, *words, "--go-on-unsaved")
    assert (code, len(found["steps"]), found["stopped"]) == (1, 5, None)
    assert "checkpoint of step 5: File too large (rank 0)" in told
    assert told.splitlines()[-1].endswith("not written: the state after step 5 (there is no checkpoint)")
    assert "the state after step 5" in found["notes"][-1]


@pytest.mark.usefixtures("small_files")
def test_the_last_saved_step_is_said(tmp_path, capsys) -> None:
    """One was saved before the disk was full."""
    words = ("--every", "1", "--checkpoints", str(tmp_path / "kept"), "--go-on-unsaved")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    assert in_process(capsys, "--steps", "2", *words)[0] == 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    code, _, told = in_process(capsys, "--steps", "4", *words)
    assert code == 1
    assert told.splitlines()[-1].endswith("the state after step 4 (the last checkpoint is of step 2)")


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("saved", [True, False])
def test_weights_that_cannot_be_written(saved: bool, tmp_path, capsys) -> None:
    words = ("--checkpoints", str(tmp_path / "kept"), "--go-on-unsaved") if saved else ()
    code, found, told = in_process(capsys, "--steps", "2", "--export", str(tmp_path / "out"), *words)
    assert (code, len(found["steps"]), found["stopped"], found["exported"]) == (1, 2, None, None)
    assert f"the weights in {str(tmp_path / 'out')!r} (" in told.splitlines()[-1]
    assert "File too large" in told.splitlines()[-1]
    assert {path.name for path in tmp_path.iterdir()} <= {"kept"}


FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full, which is a disk that is full, on this machine")


@needs_full
def test_a_log_that_cannot_be_written_does_not_end_the_run(tmp_path, capsys) -> None:
    records = tmp_path / "records"
    records.mkdir()
    (records / "rank-00000.jsonl").symlink_to(FULL)
    code, found, told = in_process(capsys, "--steps", "4", "--log", str(FULL), "--records", str(records))
    assert (code, len(found["steps"]), found["stopped"]) == (1, 4, None)
    for what, path in (("log", FULL), ("records", records / "rank-00000.jsonl")):
        said = [line for line in told.splitlines() if line.startswith(f"{what}: {str(path)!r}")]
        assert len(said) == 1, "once"
        assert "ENOSPC" in said[0]
    last = told.splitlines()[-1]
    assert str(FULL) in last
    assert str(records) in last
    assert found["notes"][-1] == last


@needs_full
def test_the_record_of_another_rank_too(tmp_path, capfd) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "rank-00001.jsonl").symlink_to(FULL)
    words = ["run", str(TINY), "--on", "2xh100", "--dp", "2", *JOB, "--steps", "2"]
    assert main([*words, "--records", str(tmp_path / "records")]) == 1
    told = capfd.readouterr().err
    assert "every step was made, but not written: records" in told
    assert "rank-00001.jsonl" in told.splitlines()[-1]


@needs_full
def test_nobody_reads_what_is_shown(tmp_path) -> None:
    """Standard error goes to a disk that is full."""
    words = ["shardwise", "run", str(TINY), "--on", "1xh100", *JOB, "--steps", "2", "--json"]
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *words], env=given, stdout=subprocess.PIPE, stderr=full, text=True, check=False,
            timeout=PATIENCE_S, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["steps"]) == 2


def started(*words: str, **environment: str) -> subprocess.Popen:
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **environment}
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, env=given, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ending(run: subprocess.Popen) -> tuple[int, str]:
    _, told = run.communicate(timeout=PATIENCE_S)
    return run.returncode, told


def run_words(tmp_path, *more: str) -> list[str]:
    return ["shardwise", "run", str(TINY), "--on", "2xh100", "--dp", "2", *JOB, "--steps", "100000", "--every", "1000",
            "--log", str(tmp_path / "log"), "--checkpoints", str(tmp_path / "kept"), *more]  # fmt: skip


def wait_for_steps(tmp_path, run: subprocess.Popen, count: int = 3) -> None:
    until = time.monotonic() + PATIENCE_S
    log = tmp_path / "log"
    while run.poll() is None and time.monotonic() < until:
        if log.exists() and log.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(run.communicate())


def ranks_of(pid: int) -> list[int]:
    return sorted(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def listening(pids: list[int]) -> set[str]:
    """Addresses on which these processes wait for connections, as the kernel writes them."""
    sockets = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.add(os.readlink(handle).removeprefix("socket:[").rstrip("]"))
            except OSError:
                continue
    rows = [row.split() for kind in ("tcp", "tcp6") for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_signal_saves_first(tmp_path) -> None:
    """SIGTERM, then SIGUSR1 to the run that goes on; every socket is on the loopback interface, and no file is left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = 0
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGUSR1, "SIGUSR1")):
        run = started(*run_words(tmp_path), TMPDIR=str(temporary))
        wait_for_steps(tmp_path, run, done + 3)
        found = listening([run.pid, *ranks_of(run.pid)])
        assert found == {"0100007F"}
        run.send_signal(number)
        code, told = ending(run)
        assert code == 128 + number, told
        steps = [json.loads(line)["step"] for line in (tmp_path / "log").read_text().splitlines()]
        assert f"stopped after step {steps[-1]}: {name}; the last checkpoint is of step {steps[-1]}" in told
        assert found_in(tmp_path / "kept")[0].name == f"step-{steps[-1]:08}"
        assert steps == list(range(1, steps[-1] + 1)), "the second went on where the first had ended"
        done = len(steps)
    assert list(temporary.iterdir()) == []
    assert not [path for path in (tmp_path / "kept").iterdir() if path.name.startswith(".")]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_killed_rank_and_a_second_launcher(tmp_path, capfd) -> None:
    run = started(*run_words(tmp_path))
    wait_for_steps(tmp_path, run)
    assert main(run_words(tmp_path)[1:]) == 2
    assert capfd.readouterr().err.count("is in use by process") == 1
    os.kill(ranks_of(run.pid)[1], signal.SIGKILL)
    code, told = ending(run)
    assert code == 1
    assert told.splitlines()[-1] == "error: run: rank 1 was killed by signal 9 (SIGKILL)"


def test_an_echo_of_a_signal_is_no_second_one(monkeypatch) -> None:
    """A scheduler signals every process, and the launcher passes it on; later the same signal ends the process."""
    with stop_requests() as asked:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert asked.signal == signal.SIGTERM
    monkeypatch.setattr("shardwise.run.runtime.train.ending.ECHO_S", -1.0)
    child = os.fork()
    if child == 0:
        with stop_requests():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


@pytest.mark.slow
def test_under_torchrun(tmp_path) -> None:
    """Each process is one rank; they refuse with one line, and go on where local ranks ended."""
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "-m"]
    words = ["shardwise", "run", str(TINY), "--on", "2xh100", "--dp", "2", *JOB]
    words += ["--checkpoints", str(tmp_path / "kept")]
    assert ending(started(*words, "--steps", "2"))[0] == 0
    apart = [words[0], "--", *words[1:]]
    assert ending(started(*launcher, *apart, "--log", str(tmp_path / "log"), "--steps", "4"))[0] == 0
    assert [json.loads(line)["step"] for line in (tmp_path / "log").read_text().splitlines()] == [3, 4]
    code, told = ending(started(*launcher, *words, "--steps", "6", "--seed", "1"))
    assert code == 1
    assert told.count("step-00000004 is of another run (seed was 0, is 1") == 1


def test_ranks_that_begin_afresh() -> None:
    """As those with a GPU do; losses are those of forked ones."""
    model = model_of(str(TINY))
    job = Job(seq=16, global_batch=4, precision=PRECISIONS["fp32"])
    task = Task(model=model, job=job, policy=Policy(dp=2, zero=1, sp=False), stack=stack_of("shardwise"))
    order = TrainingOrder(task=task, settings=TrainingSettings(steps=2))
    found = [[line.loss for line in run_ranks(order, 2, 0, fresh=fresh).lines] for fresh in (False, True)]
    assert len(found[0]) == 2
    assert found[0] == found[1]


def test_torchrun_takes_every_option_of_run() -> None:
    """torchrun reads all words before it knows which are its own, and refuses what could be short for two of its."""
    from torch.distributed.run import get_args_parser

    from shardwise.show.cli._frame import app

    options = {name for argument in app["run"].assemble_argument_collection() for name in argument.names}
    assert {"--log", "--log-file", "--checkpoints", "--tp"} <= options
    # --nproc says how many ranks to start, which torchrun does
    for option in sorted(options - {"--log", "--nproc"}):
        words = get_args_parser().parse_args(["-m", "shardwise", "run", "plan.json", option])
        assert words.training_script_args[-1] == option
    apart = get_args_parser().parse_args(["-m", "shardwise", "--", "run", "plan.json", "--log", "steps.jsonl"])
    assert apart.training_script == "shardwise"
    # newer versions of Python leave the two dashes where they are
    assert [word for word in apart.training_script_args if word != "--"] == ["run", "plan.json", "--log", "steps.jsonl"]


def test_two_dashes_before_the_verb_say_nothing(capsys) -> None:
    assert main(["--", "stacks", "--json"]) == 0
    behind = capsys.readouterr().out
    assert main(["catalog", "stacks", "--json"]) == 0
    assert capsys.readouterr().out == behind
