"""Which command answers a line: older spellings under their new names, and verbs whose argument decides.

`size --max`, `verify SCRIPT.py` and `why FOLDER` are questions of their own with options of their own; commands that
`--help` does not list answer them.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from shardwise.show.cli._verbs import WORDS

SECOND = {("catalog", "stacks"): ["catalog", "programs"], ("stacks",): ["catalog", "programs"]}
"""words under older names, and under new ones"""
MOVED = {word: f"{verb} {word}" for verb, words in WORDS.items() for word in words}
"""verbs that are second words now"""
FORMS = {
    "max": "size --max WHAT",
    "prove": "verify SCRIPT.py",
    "doctor": "why FOLDER",
    "schema": "VERB --schema",
    "completion": "--completion SHELL",
    "answers": "serve, view Learn",
    "script": "run --share-gpu N -- SCRIPT",
}
"""commands that are not listed, and what to write for them"""
OF_VERB = {"size": "max", "verify": "prove", "why": "doctor"}
"""the unlisted command that answers some lines of a verb"""
LARGEST, SCHEMA, COMPLETION = "--max", "--schema", "--completion"
OF_DOCTOR = ("--checkpoints", "--json", "--html", "--overwrite", "--help", "-h")


def renamed(words: Sequence[str]) -> list[str]:
    """The words under new names; one line on stderr says which."""
    for old, new in SECOND.items():
        if tuple(words[: len(old)]) == old:
            print(f"note: `shardwise {' '.join(old)}` is now `shardwise {' '.join(new)}`", file=sys.stderr)
            return [*new, *words[len(old) :]]
    first = words[0] if words else ""
    if first in MOVED or first in FORMS:
        now = MOVED.get(first) or FORMS[first]
        print(f"note: `shardwise {first}` is now `shardwise {now}`", file=sys.stderr)
    return [*MOVED[first].split(), *words[1:]] if first in MOVED else list(words)


def route(words: Sequence[str]) -> list[str]:
    """The words of the command that answers these."""
    if words[:1] == ["run"] and "--" in words:
        return ["script", *words[1:]]
    if SCHEMA in words:
        named = [word for word in words[:2] if not word.startswith("-")]
        return ["schema", *(named if named[1:] and named[1] in WORDS.get(named[0], {}) else named[:1])]
    first, rest = (words[0], list(words[1:])) if words else ("", [])
    if first.partition("=")[0] == COMPLETION:
        return ["completion", *filter(None, [first.partition("=")[2]]), *rest]
    for place, word in enumerate(rest if first == "size" else []):
        name, joined, what = word.partition("=")
        if name == LARGEST:
            after = rest[place + 1 :] if joined else rest[place + 2 :]
            return ["max", *([what] if joined else rest[place + 1 : place + 2]), *rest[:place], *after]
    if first == "verify" and any(word.endswith(".py") for word in rest):
        return ["prove", *rest]
    if first == "checkpoints" and rest[:1] in (["list"], ["verify"]):
        return ["checkpoints", *rest[1:], *(["--verify"] if rest[0] == "verify" else [])]
    if first == "why" and _of_a_run(rest):
        return ["doctor", *rest]
    return list(words)


def _of_a_run(words: Sequence[str]) -> bool:
    """One folder that a run left, and no option that compares it with a prediction."""
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    if not words or words[0].startswith("-") or any(option not in OF_DOCTOR for option in options):
        return False
    if "--checkpoints" in options:
        return True
    from shardwise.programs.importers.run_folder import is_run_folder

    return is_run_folder(Path(words[0]))
