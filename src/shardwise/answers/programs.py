"""`programs`: the training programs shardwise knows, how far off its predictions are, the origin of each constant."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Struct

from shardwise import catalog
from shardwise.answers.answer import Answer, Cell, FactList, Notes, Part, Table, shown, table
from shardwise.cost.calibrate.overlay import curve_with
from shardwise.spec.load import gpu_of
from shardwise.spec.software import Stack, known_stack, named, releases_of
from shardwise.spec.software.stack import part_of
from shardwise.step.estimate.band import band_for, runs_of

PLAIN = Stack(name="plain", summary="", source="", date="")
MOST_LISTED = 3
FEW_GPUS = 64
"""GPUs of the run whose band is shown: as many as most programs were fitted on"""


class SettingRow(Struct, frozen=True, kw_only=True):
    setting: str
    value: Any
    default: Any
    origin: str
    reference: str
    stack: str
    """that states it, where it is inherited"""


class ProgramAnswer(Answer, frozen=True, kw_only=True):
    name: Annotated[str, shown("program")]
    releases: Annotated[Sequence[str], shown("releases", len)]
    """what differs from it by year, release or recipe: `NAME@RELEASE` of --stack"""
    summary: str
    source: str
    date: str
    matches: Sequence[str]
    fitted_runs: Annotated[int, shown("runs", "not zero")]
    fitted_gpus: Annotated[int, shown("up to GPUs", "not zero")]
    fitted_on: Sequence[str]
    error_range: Annotated[tuple[float, float], shown("80% within", "percent range")]
    error_basis: str
    like: Annotated[str | None, shown("like")]
    caution: str | None
    taught_by: str | None
    """the runs behind it, also where they are of the program it is like"""
    settings: Sequence[SettingRow] = ()

    def parts(self) -> Iterator[Part]:
        kinds = Counter(row.origin for row in self.settings)
        facts: list[tuple[str, Cell]] = [
            ("summary", self.summary), ("source", f"{self.source} ({self.date})"), ("like", self.like),
            ("releases", ", ".join(self.releases) or None),
            ("software", ", ".join(self.matches) or None), ("error", self.error_basis), ("fitted on", self.taught_by),
            ("constants", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())),
            ("caution", self.caution),
        ]  # fmt: skip
        yield FactList(self.name, facts)
        references = list(dict.fromkeys(row.reference for row in self.settings if row.origin != "read"))
        rows = [_cells(row, self.name, references) for row in self.settings]
        heads = ["setting", "value", "origin"]
        yield Table("settings that are not shardwise's defaults", heads, rows, words=3, breaks=2)
        yield Notes([f"[{number}] {reference}" for number, reference in enumerate(references, 1)], "origins")


class ProgramsAnswer(Answer, frozen=True, kw_only=True):
    programs: Sequence[ProgramAnswer]

    def parts(self) -> Iterator[Part]:
        rows = sorted(self.programs, key=lambda row: (-row.fitted_runs, row.name))
        yield table("training programs", rows, bars=("runs",))


ANSWERS = (ProgramsAnswer, ProgramAnswer)


def programs_answer(gpu: str) -> ProgramsAnswer:
    notes = [
        f"runs: published ones its constants were fitted on; within: measured over predicted step, on {FEW_GPUS} "
        f"{gpu_of(gpu).name} without experts; like: whose settings hold where it has none of its own",
        "`shardwise catalog programs NAME`: releases, every constant and where it is from; `--stack NAME` or "
        "`--stack NAME@RELEASE` in other verbs takes it",
    ]
    names = catalog.names("programs")
    return ProgramsAnswer(programs=[program_answer(known_stack(name), gpu) for name in names], notes=notes)


def program_answer(stack: Stack, gpu: str, *, settings: bool = False) -> ProgramAnswer:
    """`settings`: also every constant that is not a default, with its origin."""
    band = band_for(named(stack), curve_with(gpu_of(gpu), None), gpus=FEW_GPUS, experts=False)
    whose, runs = runs_of(stack)
    own = whose == stack.name
    names = sorted((name for name, _ in stack.origins), key=lambda name: (part_of(name), name)) if settings else []
    return ProgramAnswer(
        name=stack.name, releases=releases_of(stack.name), summary=stack.summary, source=stack.source, date=stack.date,
        like=stack.like or None,
        matches=stack.matches, fitted_runs=runs.runs if own else 0, fitted_gpus=runs.gpus if own else 0,
        fitted_on=runs.on if own else (), error_range=(band.low, band.high), error_basis=str(band),
        caution=stack.caution or None,
        taught_by=f"{runs.runs:,} runs of {whose}, up to {runs.gpus:,} GPUs, on {', '.join(runs.on)}"
        if runs.runs else None,
        settings=[_setting(stack, name) for name in names],
    )  # fmt: skip


def _setting(stack: Stack, name: str) -> SettingRow:
    origin = stack.origin(name)
    return SettingRow(
        setting=f"{part_of(name)}.{name}", value=stack.setting(name), default=PLAIN.setting(name), origin=origin.kind,
        reference=origin.reference, stack=origin.stack,
    )  # fmt: skip


def _cells(row: SettingRow, stack: str, references: list[str]) -> list[Cell]:
    whose = "" if row.stack in ("", stack) else f" (of {row.stack})"
    reference = "" if row.origin == "read" else f" [{references.index(row.reference) + 1}]"
    return [row.setting, _text(row.value), f"{row.origin}{reference}{whose}"]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return f"{len(value)} of them" if len(value) > MOST_LISTED else ", ".join(map(str, value))
    return str(value)
