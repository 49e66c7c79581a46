"""Public launch scripts: the words that bash started their launchers with, and those that the reader finds.

`scripts.jsonl` holds facts alone: repository, commit, path, the variables given to both sides, and the words of
each launcher as a stand-in on PATH recorded them. The scripts themselves are read from clones of the repositories.
"""

import hashlib
import json
import posixpath
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardwise.programs.formats._shell import read_shell
from shardwise.programs.formats._shell_words import is_open

RECORDS = Path(__file__).with_name("scripts.jsonl")
LAUNCHERS = re.compile(
    r"torchrun|deepspeed|accelerate|python[\d.]*|swift|megatron|llamafactory-cli|ray|srun|mpirun|mpiexec|colossalai|tune|"
    r"litgpt|axolotl|torchx|xtuner|uv|numactl|sbatch|nsys|horovodrun"
)
HOME = "/home" + "/u"
_OPTION = re.compile(r"--?[A-Za-z]|\+{0,2}[A-Za-z][\w.]*=")
_PATH = re.compile(r"(?<![\w@$}])(@|\.\.?)(?=[/:'\",\s]|$)(/[^\s:'\"=,]*)?")


@dataclass(frozen=True)
class RecordedScript:
    repository: str
    commit: str
    path: str
    given: Mapping[str, str]
    """variables, and arguments by their numbers"""
    calls: Sequence[Sequence[str]]

    @property
    def set_aside(self) -> bool:
        return int(hashlib.sha256(f"{self.repository}:{self.path}".encode()).hexdigest(), 16) % 2 == 1

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.path) or "."


def recorded() -> list[RecordedScript]:
    rows = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    return [
        RecordedScript(
            row["repository"], row["commit"], row["path"], row["given"], [shlex.split(call) for call in row["argv"]]
        )
        for row in rows
    ]


def text_of(script: RecordedScript, path: str, clones: Path) -> str | None:
    """A file of the script's repository at its commit; None: not to be had."""
    folder = clones / script.repository.replace("/", "+")
    folder = next((each for each in (folder / "repo", folder / ".git", folder) if (each / "HEAD").exists()), folder)
    place = posixpath.normpath(path)
    shown = subprocess.run(["git", f"--git-dir={folder}", "show", f"{script.commit}:{place}"], capture_output=True,
                           check=False)  # fmt: skip
    return shown.stdout.decode("utf-8", errors="replace") if shown.returncode == 0 else None


def verdict(script: RecordedScript, clones: Path) -> str:
    """equal: word by word; open: so but for words that are named as known only at the start; wrong; or missing."""
    text = text_of(script, script.path, clones)
    if text is None:
        return "missing"
    try:
        read = read_shell(
            text, lambda name: text_of(script, posixpath.join(script.folder, name), clones),
            posixpath.basename(script.path), script.given,
        )  # fmt: skip
    except ValueError:
        return "refused"
    found: list[list[str]] = []
    for words in read.commands:
        if launches(words) and words not in found:
            found.append(words)
    expected = [_plain(words, script) for words in script.calls if launches(words)]
    ours = [_plain(words, script) for words in found]
    if ours == expected:
        return "equal"
    alike = len(ours) == len(expected) and all(map(_fits, ours, expected))
    return "open" if alike and any(is_open(word) for words in ours for word in words) else "wrong"


def launches(words: Sequence[str]) -> bool:
    """Whether it starts something with options, itself and not in a shell of its own."""
    wraps = words[0] in ("srun", "mpirun", "mpiexec", "ray", "sbatch") and any(
        posixpath.basename(word) in ("bash", "sh") for word in words
    )
    return bool(LAUNCHERS.fullmatch(words[0])) and sum(bool(_OPTION.match(word)) for word in words) >= 4 and not wraps


def _plain(words: Sequence[str], script: RecordedScript) -> list[str]:
    """Paths as from the root of the repository, which records write as @."""

    def rooted(match: re.Match[str]) -> str:
        if match[1] == "@":
            return posixpath.normpath(match[0][1:].lstrip("/") or ".")
        return posixpath.normpath(posixpath.join(script.folder, match[0]))

    return [_PATH.sub(rooted, word.replace(HOME, "~")) for word in words]


def _fits(ours: Sequence[str], expected: Sequence[str]) -> bool:
    """Open parts stand for any text, a word that is open as a whole also for several words or none."""
    pattern = ""
    for word in ours:
        parts = word.split("\0")
        text = "".join(".*?" if number % 2 else re.escape(part) for number, part in enumerate(parts))
        whole = len(parts) == 3 and parts[0] == parts[2] == ""
        pattern += f"(?:{text}\1)?" if whole else f"{text}\1"
    return re.fullmatch(pattern, "".join(f"{word}\1" for word in expected), re.DOTALL) is not None
