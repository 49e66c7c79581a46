"""What a shell's own commands do to its variables: shift, set, read, unset."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from shardwise.programs.formats._shell_lines import slurm_variables
from shardwise.programs.formats._shell_words import NAME, is_open, open_word


def set_at_start(directives: list[str], name: str, given: Mapping[str, str]) -> dict[str, list[str]]:
    """Variables of a script before its first line: of Slurm, its own name, and those given; arguments by number."""
    known = slurm_variables(directives) | {"0": f"./{name}", "BASH_SOURCE": f"./{name}", "PWD": "."}
    variables = {variable: [value] for variable, value in known.items()}
    if numbers := sorted(int(number) for number in given if re.fullmatch(r"[1-9]\d?", number)):
        set_arguments(variables, [given[str(number)] for number in numbers])
    return variables | {variable: [value] for variable, value in given.items()}


def set_by_builtin(name: str, given: list[str], variables: dict[str, list[str]]) -> bool | None:
    """Whether the command succeeds; None where only a run shows it."""
    if name == "shift":
        count = int(given[0]) if given and given[0].isdigit() else 1
        set_arguments(variables, variables.get("@", [])[count:])
    elif name == "set" and "--" in given:
        set_arguments(variables, given[given.index("--") + 1 :])
    elif name in ("read", "mapfile", "readarray", "getopts"):
        for word in given:
            if re.fullmatch(NAME, word):
                variables[word] = [open_word(f"${word}")]
        return None if name != "getopts" else False
    elif name in ("cd", "pushd", "popd"):
        _moved(name, [word for word in given if word != "--" and not re.fullmatch(r"-[LPe]+", word)], variables)
    elif name == "unset":
        for word in given:
            variables.pop(word, None)
    return name != "false"


def set_arguments(variables: dict[str, list[str]], words: list[str]) -> None:
    """Words behind a command, as $1, $2, ..., $@ and $#."""
    for name in [name for name in variables if name.isdigit() and name != "0"]:
        del variables[name]
    variables |= {str(number): [word] for number, word in enumerate(words, 1)}
    variables |= {"@": words, "*": words, "#": [str(len(words))]}


def _moved(name: str, given: list[str], variables: dict[str, list[str]]) -> None:
    """The folder that the script is in; that of the script itself counts as the first."""
    before = variables.get("PWD", ["."])
    back = name == "popd" or given == ["-"]
    target = "".join(variables.get("OLDPWD", ["."])) if back else "".join(given or variables.get("HOME", ["~"]))
    variables["PWD"] = [open_word("$PWD") if is_open(before[0] + target) else joined_path(before[0], target)]
    variables["OLDPWD"] = before


def joined_path(folder: str, name: str) -> str:
    """Without `.` and, behind a name, `..`."""
    parts = list[str]()
    for part in PurePosixPath(folder or ".", name).parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        else:
            parts.append(part)
    return str(PurePosixPath(*parts))
