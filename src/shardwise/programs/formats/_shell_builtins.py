"""What a shell's own commands do to its variables: shift, set, read, unset."""

import re

from shardwise.programs.formats._shell_words import NAME, open_word


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
