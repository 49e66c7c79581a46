"""Command lines of public scripts with their settings as read by hand: what is read of them, field by field.

`by_hand.toml`: a label names the program and its values; `-`: of no program that is read, or without a file that
decides; `?`: read rightly or refused. `parts`: that only some parts are trained has to be said. Labels of `set_aside`
were written before the files were first read. `files` holds settings of files that the command lines name.
"""

import json
import shlex
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from formats.script_corpus import launches, recorded
from shardwise.programs.formats import Found, read_launch
from shardwise.programs.formats._unmodelled import without_influence

LABELS = Path(__file__).with_suffix(".toml")
POLICY = {"micro": "micro_batch"}
FACTS = {"batch": "global_batch", "gpus": "gpus", "seq": "seq", "precision": "precision", "tune": "tune"}
ALIKE = {"micro": ("micro_batch", "micro_train"), "batch": ("batch",), "tp": ("tensor",), "tune": ("lora", "adapter"),
         "gpus": ("ranks", "nodes"), "seq": ("length", "seq")}  # fmt: skip
"""words by which a note names a value that is read otherwise"""


@dataclass(frozen=True)
class ByHand:
    source: str
    program: str
    """empty: refused; '?': either"""
    fields: Mapping[str, str]
    text: str
    beside: Mapping[str, str]


@dataclass(frozen=True)
class Judged:
    right: int = 0
    named: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    """values that differ and that nothing names"""
    refused_wrongly: str = ""


def labelled(half: str) -> list[ByHand]:
    data = tomllib.loads(LABELS.read_text(encoding="utf-8"))
    calls = {f"{script.repository}:{script.path}": max(filter(launches, script.calls), key=len, default=script.calls[0])
             for script in recorded()}  # fmt: skip
    rows = []
    for source, label in data[half].items():
        program, *values = label.split()
        fields = {name: value for name, _, value in (each.partition("=") for each in values)}
        beside = {name.partition(":")[2]: json.dumps(content) for name, content in data["files"].items()
                  if name.partition(":")[0] == source.partition(":")[0]}  # fmt: skip
        text = shlex.join(calls[source]).replace("@/", "") + "\n"
        rows.append(ByHand(source, "" if program == "-" else program, fields, text, beside))
    return rows


def later(half: str, clones: Path, folder: Path) -> Iterator[Judged]:
    """Of later.toml, from clones: each file in its folder, as it stands in the newest commit there."""
    data = tomllib.loads(LABELS.with_name("later.toml").read_text(encoding="utf-8"))
    for number, (source, label) in enumerate(data[half].items()):
        repository, _, path = source.partition(":")
        at = clones / repository.replace("/", "+")
        at = next((each for each in (at / "repo", at / ".git", at) if (each / "HEAD").exists()), at)
        around = path.rpartition("/")[0] or "."
        packed = subprocess.run(["git", f"--git-dir={at}", "archive", "HEAD", around], capture_output=True, check=False)
        if packed.returncode:
            continue
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder / str(number), filter="data")
        program, *values = label.split()
        fields = {name: value for name, _, value in (each.partition("=") for each in values)}
        yield compared(ByHand(source, "" if program == "-" else program, fields, "", {}), folder / str(number) / path)


def judged(file: ByHand, folder: Path) -> Judged:
    (folder / "run.sh").write_text(file.text, encoding="utf-8")
    for name, content in file.beside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return compared(file, folder / "run.sh")


def compared(file: ByHand, place: Path) -> Judged:
    """Its labels with what is read of it where it lies."""
    try:
        program, found = read_launch([place])
    except ValueError as error:
        return Judged(refused_wrongly="" if file.program in ("", "?") else str(error))
    if not file.program:
        return Judged(silent=(f"read as {program.name}",))
    unsure = [text for text in found.unmodelled if not without_influence(text, program.name)]
    said = " ".join((*found.not_modelled, *found.notes, *unsure)).lower()
    right, named, silent = 0, list[str](), list[str]()
    if file.program not in ("?", program.name):
        silent.append(f"program {program.name}")
    for name, value in file.fields.items():
        ours = _value(name, found, said)
        if ours == value or (name == "tune" and ours.startswith(value)):
            right += 1
        elif any(word in said for word in ALIKE.get(name, (name,))):
            named.append(f"{name} {ours}, not {value}")
        else:
            silent.append(f"{name} {ours}, not {value}")
    return Judged(right, tuple(named), tuple(silent))


def _value(name: str, found: Found, said: str) -> str:
    if name == "parts":
        return "" if "which parts are trained" in said or found.freeze else "not said"
    if name in FACTS:
        return str(getattr(found, FACTS[name]))
    return str(getattr(found.policy, POLICY.get(name, name)))
