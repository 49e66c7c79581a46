"""Callbacks for the Trainer of Hugging Face and for Lightning. Both programs call what they know by name, so that
neither has to be installed here."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from shardwise.measured.record.loop import Recorder


class _Named:
    """Has every hook that is asked for; those that are not written do nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith(("on_", "setup", "teardown", "load_state_dict")):
            return _nothing
        raise AttributeError(name)


def _nothing(*_: Any, **__: Any) -> None:
    return None


class TrainerRecorder(_Named):
    """`trainer.add_callback(TrainerRecorder("runs/a"))`"""

    def __init__(self, folder: str | Path) -> None:
        self.recorder = Recorder(folder, program="Hugging Face Trainer")
        self._since = perf_counter()

    def on_train_begin(self, args: Any = None, state: Any = None, control: Any = None, **_: Any) -> None:  # noqa: ARG002
        self.recorder.step = int(getattr(state, "global_step", 0) or 0)
        self.recorder.checkpoints = str(getattr(args, "output_dir", "") or "")
        self.recorder.begin()
        self._since = perf_counter()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The batches of the step are there."""
        self._until("data_s")

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._since = perf_counter()
        self.recorder.end_step()

    def on_log(self, *_: Any, **__: Any) -> None:
        self._until("other_s")

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self._until("other_s")

    def on_save(self, *_: Any, **__: Any) -> None:
        begun = self._since
        self._until("save_s")
        self.recorder.event("saved", seconds=self._since - begun)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.recorder.end()

    def _until(self, part: str) -> None:
        """What passed since the last hook went to this."""
        now = perf_counter()
        self.recorder.clock.add(part, now - self._since)
        self._since = now


class LightningRecorder(_Named):
    """`Trainer(callbacks=[LightningRecorder("runs/a")])`"""

    state_key = "shardwise.measured.record"

    def __init__(self, folder: str | Path) -> None:
        self.recorder = Recorder(folder, program="Lightning")
        self._since = perf_counter()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        self.recorder.step = int(getattr(trainer, "global_step", 0) or 0)
        self.recorder.begin()
        self._since = perf_counter()

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        self.recorder.clock.add("data_s", perf_counter() - self._since)

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.recorder.end_step()
        self._since = perf_counter()

    def on_validation_start(self, *_: Any) -> None:
        self._since = perf_counter()

    def on_validation_end(self, *_: Any) -> None:
        self.recorder.clock.add("other_s", perf_counter() - self._since)
        self._since = perf_counter()

    def on_save_checkpoint(self, *_: Any, **__: Any) -> None:
        self.recorder.event("saved")

    def on_exception(self, _trainer: Any, _module: Any, error: BaseException) -> None:
        self.recorder.end(f"{type(error).__name__}: {str(error)[:300]}")

    def on_train_end(self, *_: Any) -> None:
        self.recorder.end()
