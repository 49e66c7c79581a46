"""Where `check --fix` writes what it changed."""

from dataclasses import dataclass
from pathlib import Path

from shardwise.answers.check import FileChange
from shardwise.programs.formats._fix import Fixed
from shardwise.spec.policy import Policy
from shardwise.whole_file import OutputFile


@dataclass(frozen=True)
class FixedPlace:
    """As asked for; what does not go together is refused before anything is done."""

    fix: bool
    whole_plan: bool
    out: Path | None
    in_place: bool
    overwrite: bool

    def __post_init__(self) -> None:
        named = {"whole-plan": self.whole_plan, "out": self.out is not None, "in-place": self.in_place}
        for flag, given in named.items():
            if given and not self.fix:
                raise ValueError(f"{flag}: goes with a change; write --fix too")
        if self.out is not None and self.in_place:
            raise ValueError("in-place: and --out is given; write one of them")
        if self.in_place and not self.overwrite:
            raise ValueError("in-place: the files themselves would be replaced; write --overwrite too")
        if self.out is not None and self.out.exists() and not self.overwrite:
            raise ValueError(f"out: {str(self.out)!r} is there already; write another path, or --overwrite")

    def written(self, fixed: Fixed, policy: Policy) -> FileChange:
        texts = dict(fixed.texts)
        if self.out is not None:
            if len(texts) > 1:
                names = ", ".join(path.name for path in texts)
                raise ValueError(f"out: {names} change, and --out names one file; write --in-place --overwrite")
            texts = dict.fromkeys([self.out], next(iter(texts.values())))
        elif not self.in_place:
            texts = {}
        for path, text in texts.items():
            OutputFile(path, "out", mark=b"", overwrite=self.overwrite).write(text.encode())
        notes = [
            f"{name}: {'unset it' if value is None else f'set it to {value}'}, as the changed policy asks"
            for name, value in fixed.environment.items()
        ]
        files = [str(path) for path in texts]
        return FileChange(policy=policy, diff=fixed.diff, files=files, environment=fixed.environment, notes=notes)
