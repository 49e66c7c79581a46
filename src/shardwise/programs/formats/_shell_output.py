"""What commands print whose output their words tell: paths, sequences, sums."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from shardwise.programs.formats._shell_builtins import joined_path
from shardwise.programs.formats._shell_words import Environment, Expander, is_open, open_word

OUTPUTS = ("echo", "printf", "pwd", "dirname", "basename", "realpath", "readlink", "seq", "expr", "cat")


def output_of(name: str, given: Sequence[str], environment: Environment) -> list[str]:
    """Lines; open where only a run tells. The folder of the script counts as the current one."""
    plain = [word for word in given if not re.fullmatch(r"-[a-zA-Z]{1,3}|--", word)]
    match name, plain:
        case "echo", _:
            return [" ".join(plain)]
        case "pwd", []:
            return environment.variables.get("PWD", ["."])
        case "dirname", [path] if not is_open(path):
            # the script's folder, and those above it, are known by these names alone
            above = path.rstrip("/").rpartition("/")[2] in (".", "..") and path != "./"
            return [joined_path(path, "..") if above else str(PurePosixPath(path).parent)]
        case "basename", [path, *ending] if not is_open(path):
            return [PurePosixPath(path).name.removesuffix("".join(ending))]
        case (("realpath" | "readlink"), [path]) if not is_open(path):
            return [joined_path(environment.variables.get("PWD", ["."])[0], path)]
        case "printf", [text] if "%" not in text:
            return [text]
        case "printf", [form, *words] if not is_open(form) and form.count("%") == form.count("%s") == len(words):
            return [form.replace("\\n", "\n") % tuple(words)]
        case "seq", numbers if 1 <= len(numbers) <= 3 and all(re.fullmatch(r"-?\d{1,4}", number) for number in numbers):
            return [_sequence([int(number) for number in numbers])]
        case "expr", words:
            return Expander(f"$(({' '.join(words)}))", environment).words()
    return [open_word(f"$({name} {' '.join(given)})")]


def _sequence(numbers: list[int]) -> str:
    first, last = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0:
        return ""
    return " ".join(map(str, range(first, last + (1 if step > 0 else -1), step)))
