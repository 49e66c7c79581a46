"""One input: made from a seed and a number, run in this process, and judged."""

import contextlib
import io
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.damage import damage_folder, damaged
from fuzz.readers import Reader, argument, catalog_line, kinds, read, readers, shown, with_plugins
from fuzz.samples import THEIRS, folders, make_special, replaced, samples, write_folder
from fuzz.verbs import Command, Option, commands, file_line, file_options, line
from shardwise.refusal import is_refusal
from shardwise.show.cli import main

VERBS, FILES, CATALOG = 0.12, 0.1, 0.03
"""shares of the inputs; the rest goes to readers: a line that is answered costs far more than a file that is refused"""
FileLine = tuple[Command, Option]
CODES = (0, 1, 2)
OWN = ("mine", "new.toml")
"""what a line may leave in the folder it is run in"""


@dataclass(frozen=True)
class Outcome:
    kind: str
    """fine, traceback, wrong exit code, memory, replaced or left behind"""
    what: str = ""


FINE = Outcome("fine")


class Place:
    """A folder to run inputs in, with one right file of each kind."""

    def __init__(self) -> None:
        self.cwd = Path.cwd()
        self.root = Path(tempfile.mkdtemp(prefix="shardwise-fuzz-"))
        self.folder, self.temporary = self.root / "here", self.root / "tmp"
        self.samples, self.folders = samples(), folders()
        self.renew()

    def renew(self) -> None:
        for path in (self.folder, self.temporary):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        for name, content in self.samples.items():
            (self.folder / name).write_bytes(content)
        for name, files in self.folders.items():
            write_folder(self.folder / name, files)
        make_special(self.folder)
        self.before = set(os.listdir(self.folder))
        os.chdir(self.folder)
        tempfile.tempdir = str(self.temporary)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that is right."""
        return (*self.samples, *self.folders)

    def close(self) -> None:
        os.chdir(self.cwd)
        tempfile.tempdir = None
        shutil.rmtree(self.root, ignore_errors=True)


def described(seed: str, number: int, names: tuple[str, ...]) -> tuple[Random, Command | FileLine | Reader | str]:
    """`names`: of the samples."""
    random = Random(f"{seed}/{number}")
    share = random.random()
    if share < VERBS:
        return random, random.choice(commands())
    if share < VERBS + FILES:
        return random, random.choice(file_options(names))
    if share < VERBS + FILES + CATALOG:
        return random, random.choice(kinds())
    return random, random.choice(readers())


def run_one(seed: str, number: int, place: Place, tell: Callable[[str], None] = str) -> tuple[str, Outcome]:
    """(what it was, what came of it). `tell`: what it is, before it is run."""
    random, chosen = described(seed, number, place.names)
    try:
        if isinstance(chosen, Reader):
            given = argument(chosen, random, place.samples, place.folder)
            what = f"{chosen.name} {shown(given)}"
            tell(what)
            return what, _judged_reader(chosen, given, place)
        if isinstance(chosen, str):
            words = catalog_line(chosen, random, place.samples, place.folder)
            content = next((place.folder / "mine/catalog" / chosen).iterdir()).read_bytes()
            what = f"catalog {chosen} {shown(words)} {shown(content)}"
            tell(what)
            return what, _judged_line(words, place, lambda: with_plugins(place.folder / "mine", words))
        files = _Files(place, random)
        words = line(chosen, random, files) if isinstance(chosen, Command) else file_line(*chosen, random, files)
        detail = "".join(f" with {name} {what}" for name, what in files.made.items())
        what = f"shardwise {shown(words)}{detail}"
        tell(what)
        return what, _judged_line(words, place, lambda: main(words))
    finally:
        _tidy(place)


class _Files:
    def __init__(self, place: Place, random: Random) -> None:
        self.names, self.made = list(place.names), dict[str, str]()
        self._place, self._random = place, random

    def odd(self, name: str) -> str:
        place, made = self._place, f"odd-{name}"
        if name in place.folders:
            shutil.rmtree(place.folder / made, ignore_errors=True)
            write_folder(place.folder / made, place.folders[name])
            self.made[made] = damage_folder(place.folder / made, place.folders[name], self._random)
        else:
            content = damaged(place.samples[name], self._random)
            (place.folder / made).write_bytes(content)
            self.made[made] = shown(content)
        return made


def _tidy(place: Place) -> None:
    extra = set(os.listdir(place.folder)) - place.before
    for name in extra:
        path = place.folder / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()


def _judged_reader(reader: Reader, given: object, place: Place) -> Outcome:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            read(reader, given)
    except MemoryError as error:
        return Outcome("memory", _told(error))
    except ValueError as error:
        return FINE if is_refusal(error) and str(error).strip() else Outcome("traceback", _told(error))
    except Exception as error:
        return Outcome("traceback", _told(error))
    return _left(place)


def _judged_line(words: list[str], place: Place, call: object) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = call()  # type: ignore[operator]
    except BaseException as error:
        return Outcome("traceback", _told(error))
    told = err.getvalue()
    if code == 70:
        return Outcome("traceback", told.strip())
    if "memory: there is not enough" in told:
        return Outcome("memory", told.strip())
    if code not in CODES:
        return Outcome("wrong exit code", f"{code}: {told[-300:]}")
    in_its_place = '"refused"' in out.getvalue()  # `auto` of several scripts
    if code == 2 and not in_its_place and (not told.startswith("error: ") or told.count("\n") != 1):
        return Outcome("wrong exit code", f"2 with {told[-300:]!r}")
    if code != 2 and "Traceback" in told:
        return Outcome("traceback", told[-300:])
    return _left(place, words)


def _left(place: Place, words: list[str] | None = None) -> Outcome:
    gone = replaced(place.folder)
    if gone and "--overwrite" not in (words or []):
        place.renew()
        return Outcome("replaced", gone)
    if gone:
        (place.folder / "theirs.svg").write_bytes(THEIRS)
    left = [name for name in os.listdir(place.temporary) if name != "shardwise"]
    if left:
        place.renew()
        return Outcome("left behind", ", ".join(left))
    return FINE


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "shardwise" in frame.filename] or frames
    last = own[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} ({Path(last.filename).name}:{last.lineno})"
