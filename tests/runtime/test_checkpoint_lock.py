"""One run has a folder of checkpoints at a time; what the dead left is taken over, what another host left is not."""

import os
import signal
import socket
import time

import msgspec
import pytest

from shardwise.run.runtime.checkpoints.lock import NAME, LockOwner, lock, owner_of


def held_by_another(folder) -> int:
    """A process that has the lock and does nothing."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        lock(folder)
        os.write(told, b"1")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    os.close(ready)
    os.close(told)
    return child


def test_it_is_given_back(tmp_path) -> None:
    for _ in range(2):
        held = lock(tmp_path)
        assert held.taken_from is None
        assert owner_of(tmp_path).pid == os.getpid()
        held.release()
        assert list(tmp_path.iterdir()) == []


def test_the_living_keep_it_and_the_dead_do_not(tmp_path) -> None:
    child = held_by_another(tmp_path)
    try:
        with pytest.raises(ValueError, match=f"in use by process {child} on .*, started 20.*write another folder"):
            lock(tmp_path, patience_s=0.1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    held = lock(tmp_path, patience_s=0.1)
    assert held.taken_from.pid == child
    held.release()


def test_one_that_is_about_to_end_is_waited_for(tmp_path) -> None:
    child = held_by_another(tmp_path)
    killer = os.fork()
    if killer == 0:
        time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
        os._exit(0)
    held = lock(tmp_path, patience_s=10.0)
    held.release()
    for pid in (child, killer):
        os.waitpid(pid, 0)


def test_another_host_is_believed(tmp_path) -> None:
    owner = LockOwner(pid=1, host="elsewhere", since="2026-01-01", run="job 7")
    (tmp_path / NAME).write_bytes(msgspec.json.encode(owner))
    with pytest.raises(ValueError, match=f"process 1 on elsewhere.*delete .*{NAME}"):
        lock(tmp_path, patience_s=0.0)
    with pytest.raises(ValueError, match="elsewhere"):
        lock(tmp_path, run="job 8", patience_s=0.0)
    assert lock(tmp_path, run="job 7", patience_s=0.0).taken_from == owner, "a restart of the same run"


@pytest.mark.parametrize("alive", [True, False])
def test_a_file_system_without_locks(alive: bool, tmp_path, monkeypatch) -> None:
    """Then the process is looked for."""

    def refused(*_) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refused)
    lock(tmp_path, patience_s=0.0).release()
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    if not alive:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    owner = LockOwner(pid=child, host=socket.gethostname(), since="2026-01-01")
    (tmp_path / NAME).write_bytes(msgspec.json.encode(owner))
    if not alive:
        assert lock(tmp_path, patience_s=0.0).taken_from == owner
        return
    with pytest.raises(ValueError, match="in use by process"):
        lock(tmp_path, patience_s=0.0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_what_is_no_file_is_no_lock(kind: str, tmp_path) -> None:
    path = tmp_path / ".lock"
    {"pipe": lambda: os.mkfifo(path), "folder": path.mkdir, "link": lambda: path.symlink_to("/dev/zero")}[kind]()
    assert owner_of(tmp_path) is None
    with pytest.raises(ValueError, match="not an ordinary file; delete it"):
        lock(tmp_path)
