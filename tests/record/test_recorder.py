"""The record of a loop that others wrote: two lines, or a callback that no program has to be installed for."""

import errno
import os
import resource
from types import SimpleNamespace

import pytest

from shardwise.measured.record import LightningRecorder, Recorder, TrainerRecorder
from shardwise.measured.record import callbacks as callbacks_module
from shardwise.measured.record import loop as loop_module
from shardwise.measured.record.writer import AddedFile
from shardwise.programs.importers.step_records import read_records, record_files


class Clock:
    """Time that passes when told."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        for module in (loop_module, callbacks_module):
            monkeypatch.setattr(module, "perf_counter", lambda: self.now)

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


def steps_in(folder):
    run = read_records(record_files(folder), "")
    return run.ranks[0]


def test_two_lines_around_a_loader(clock, tmp_path):
    def loader():
        for batch in range(3):
            clock.passes(0.5)
            yield batch

    recorder = Recorder(tmp_path)
    for _batch in recorder.steps(loader()):
        clock.passes(2.0)
        with recorder.communicating("dp"):
            clock.passes(0.25)
    found = steps_in(tmp_path)
    assert [step.step for step in found.steps] == [1, 2, 3]
    first = found.steps[0]
    assert (first.step_s, first.data_s, first.comm_s, first.axes_s) == (2.75, 0.5, 0.25, {"dp": 0.25})
    assert first.own_s == 2.0
    assert first.held_bytes > 0
    assert found.end is not None
    assert found.end.why == ""


def test_an_exception_of_the_loop_is_the_end(clock, tmp_path):
    recorder = Recorder(tmp_path)

    def loader():
        yield 1
        raise RuntimeError("no such file")

    steps = recorder.steps(loader())
    next(steps)
    clock.passes(1.0)
    with pytest.raises(RuntimeError):
        next(steps)
    assert steps_in(tmp_path).end.why == "RuntimeError: no such file"


def test_a_full_disk_does_not_stop_the_loop(clock, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for _ in Recorder(tmp_path).steps(range(3)):
        clock.passes(1.0)
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"records: .* cannot be written"):
        Recorder(tmp_path / "file" / "deeper").begin()


def test_a_trainer_calls_it_by_the_names_of_its_events(clock, tmp_path):
    """The order of Hugging Face's Trainer: data, on_step_begin, work, on_step_end, on_log, on_save."""
    callback = TrainerRecorder(tmp_path)
    args, state, control = SimpleNamespace(output_dir="out"), SimpleNamespace(global_step=10), object()
    callback.on_init_end(args, state, control)
    callback.on_train_begin(args, state, control)
    for number in range(2):
        clock.passes(0.3)
        callback.on_step_begin(args, state, control, model=None)
        clock.passes(2.0)
        callback.on_pre_optimizer_step(args, state, control)
        callback.on_step_end(args, state, control)
        clock.passes(0.1)
        callback.on_log(args, state, control, logs={})
        if number == 0:
            clock.passes(1.5)
            callback.on_save(args, state, control)
    callback.on_train_end(args, state, control)
    found = steps_in(tmp_path)
    assert [step.step for step in found.steps] == [11, 12]
    assert found.steps[0].data_s == pytest.approx(0.3)
    second = found.steps[1]
    assert (second.data_s, second.save_s, second.other_s) == tuple(map(pytest.approx, (0.3, 1.5, 0.1)))
    assert second.own_s == pytest.approx(2.0)
    assert found.head.checkpoints == "out"
    assert [event.what for event in found.events] == ["saved"]


def test_lightning_calls_it_by_the_names_of_its_hooks(clock, tmp_path):
    callback, trainer = LightningRecorder(tmp_path), SimpleNamespace(global_step=0)
    callback.setup(trainer, None, stage="fit")
    assert isinstance(callback.state_key, str)
    assert callback.state_dict() == {}
    callback.on_fit_start(trainer, None)
    callback.on_train_start(trainer, None)
    for number in range(3):
        clock.passes(0.2)
        callback.on_train_batch_start(trainer, None, None, number)
        clock.passes(1.0)
        callback.on_train_batch_end(trainer, None, None, None, number)
    callback.on_exception(trainer, None, KeyError("x"))
    found = steps_in(tmp_path)
    assert [(step.step_s, step.data_s) for step in found.steps] == [tuple(map(pytest.approx, (1.2, 0.2)))] * 3
    assert found.end.why == "KeyError: 'x'"


def test_what_is_no_hook_is_no_attribute(tmp_path):
    with pytest.raises(AttributeError):
        _ = TrainerRecorder(tmp_path).nonsense


def test_half_a_line_is_taken_back(tmp_path, capsys) -> None:
    """The disk is full in the middle of a line; later there is room again."""
    file = AddedFile(tmp_path / "log", "log")
    file.add(b"first\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        file.add(b"second line\n")
        file.add(b"third line\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.add(b"fourth\n")
    assert (tmp_path / "log").read_bytes() == b"first\nfourth\n"
    assert capsys.readouterr().err.count("EFBIG") == 1
    assert str(tmp_path / "log") in file.failed
