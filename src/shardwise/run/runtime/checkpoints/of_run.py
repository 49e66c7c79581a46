"""The checkpoints of one run: its hold on the folder, what it goes on from, what it writes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardwise.measured.record.writer import say
from shardwise.run.runtime.checkpoints.agree import AgreedRefusal, Agreement
from shardwise.run.runtime.checkpoints.folder import final_name, newest, step_of, sweep
from shardwise.run.runtime.checkpoints.identity import differences, listed
from shardwise.run.runtime.checkpoints.lock import FolderLock, lock
from shardwise.run.runtime.checkpoints.mark import passed_over
from shardwise.run.runtime.checkpoints.opened import OpenedFolder
from shardwise.run.runtime.checkpoints.resume import resume
from shardwise.run.runtime.checkpoints.save import CheckpointSaver
from shardwise.run.runtime.checkpoints.seen import check_shared
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.task import TrainingSettings

NO_NAME = "none"
"""torchrun's name of a run that has none"""


class RunCheckpoints:
    """Made by all ranks together before the first step: one run writes in the folder, and all its ranks see it."""

    def __init__(self, engine: TrainingEngine, settings: TrainingSettings, of: Mapping[str, Any]) -> None:
        self.engine, self.settings, self.of = engine, settings, of
        self.folder = Path(settings.checkpoints)
        self.agreed = Agreement(engine.world.wait)
        self._opened: FolderLock | OpenedFolder | None = None
        self.agreed.by_first(self._take)
        try:
            check_shared(self.folder, self.agreed)
            self._same_everywhere()
            if self._opened is None:
                self._opened = OpenedFolder(self.folder)
        except BaseException:
            self.release()
            raise
        self.saver = CheckpointSaver(
            engine,
            self.folder,
            self.agreed,
            of=of,
            check=self._opened.check,
            in_background=settings.async_checkpoints,
            keep=settings.keep,
            go_on=settings.go_on_unsaved,
        )

    def _take(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            run = os.environ.get("TORCHELASTIC_RUN_ID", "")
            self._opened = taken = lock(self.folder, "" if run == NO_NAME else run)
        except OSError as error:
            raise ValueError(
                f"checkpoints: {str(self.folder)!r} cannot be written ({error.strerror}); write a folder of yours"
            ) from None
        if (before := taken.taken_from) is not None:
            say(f"checkpoints: took over the lock of {before.text()}, which ended without giving it back")
        sweep(self.folder)

    def _same_everywhere(self) -> None:
        """Ranks that differ in what they train - data of another node - would go on from each other's numbers."""
        first = self.agreed.by_first(lambda: self.of)

        def compare() -> None:
            if changed := differences(first, self.of):
                raise ValueError(listed(changed))

        if problems := self.agreed.problems(compare):
            rank, what = next(iter(problems.items()))
            raise AgreedRefusal(f"run: rank {rank} trains something else than rank 0 ({what}); give all ranks the same")

    def resume(self) -> int:
        """The step that was loaded; 0: nothing was."""
        found = resume(self.engine, self.folder, self.of, self.agreed, force=self.settings.force)
        self.saver.saved = None if found is None else step_of(found)
        return self.saver.saved or 0

    def pass_over(self, why: str) -> None:
        """What was loaded is not gone on from again: its first step gave no number."""
        step = self.saver.saved
        if step is None or self.agreed.rank:
            return
        path = final_name(self.folder, step)
        try:
            self.saver.check()
            mark = passed_over(path, why)
            line = f"is passed over from the next start on: {why}; delete {str(mark)!r} to go on from it all the same"
        except OSError as error:
            line = f"cannot be marked as one not to go on from ({error.strerror}), though {why}"
        say(f"checkpoints: {path.name} {line}")

    def kept(self) -> str:
        """What a start would go on from."""
        try:
            self.saver.check()
        except OSError as error:
            step = self.saver.saved
            before = f"step {step} was saved before" if step is not None else "no step was saved"
            return f"{before} ({error.strerror})"
        found = newest(self.folder)
        return f"the last checkpoint is of step {step_of(found)}" if found is not None else "there is no checkpoint"

    def release(self) -> None:
        """Other runs may have the folder."""
        if isinstance(self._opened, FolderLock):
            self._opened.release()
        elif self._opened is not None:
            self._opened.close()
        self._opened = None
