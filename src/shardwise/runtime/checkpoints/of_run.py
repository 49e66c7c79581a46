"""The checkpoints of one run: its hold on the folder, what it goes on from, what it writes."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardwise.runtime.checkpoints.agree import AgreedRefusal, Agreement
from shardwise.runtime.checkpoints.folder import newest, step_of, sweep
from shardwise.runtime.checkpoints.identity import differences, listed
from shardwise.runtime.checkpoints.lock import FolderLock, lock
from shardwise.runtime.checkpoints.resume import resume
from shardwise.runtime.checkpoints.save import CheckpointSaver
from shardwise.runtime.checkpoints.seen import check_shared
from shardwise.runtime.train.engine import TrainingEngine
from shardwise.runtime.train.task import TrainingSettings

NO_NAME = "none"
"""torchrun's name of a run that has none"""


class RunCheckpoints:
    """Made by all ranks together before the first step: one run writes in the folder, and all its ranks see it."""

    def __init__(self, engine: TrainingEngine, settings: TrainingSettings, of: Mapping[str, Any]) -> None:
        self.engine, self.settings, self.of = engine, settings, of
        self.folder = Path(settings.checkpoints)
        self.agreed = Agreement(engine.world.wait)
        self._lock: FolderLock | None = None
        self.agreed.by_first(self._take)
        try:
            check_shared(self.folder, self.agreed)
            self._same_everywhere()
        except BaseException:
            self.release()
            raise
        self.saver = CheckpointSaver(
            engine,
            self.folder,
            self.agreed,
            of=of,
            in_background=settings.async_checkpoints,
            keep=settings.keep,
            go_on=settings.go_on_unsaved,
        )

    def _take(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            run = os.environ.get("TORCHELASTIC_RUN_ID", "")
            self._lock = lock(self.folder, "" if run == NO_NAME else run)
        except OSError as error:
            raise ValueError(
                f"checkpoints: {str(self.folder)!r} cannot be written ({error.strerror}); write a folder of yours"
            ) from None
        if (before := self._lock.taken_from) is not None:
            line = f"checkpoints: took over the lock of {before.text()}, which ended without giving it back"
            print(line, file=sys.stderr, flush=True)
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
        return 0 if found is None else step_of(found)

    def newest_step(self) -> int | None:
        found = newest(self.folder)
        return None if found is None else step_of(found)

    def release(self) -> None:
        """Other runs may have the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
