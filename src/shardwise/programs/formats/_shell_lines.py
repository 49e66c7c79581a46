"""Lines of a shell script before its words: texts for other commands left out, continued lines joined."""

import re
from dataclasses import dataclass, field

_PIECE = re.compile(r"""'[^']*'|\\.|"(?:[^"\\]|\\.)*"|(?<![^\s;&|(])\#[^\n]*""", re.DOTALL)
"""quoted text, an escaped character, a comment"""
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)(\w+)\1[^\n]*\n")
SLURM = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--gres": ("SLURM_GPUS_ON_NODE",),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
}  # fmt: skip
DECLARES = ("export", "declare", "typeset", "local", "readonly")
PREFIXES = ("exec", "time", "env", "nohup", "command", "builtin", "sudo")
QUERIES = ("grep", "egrep", "which", "type", "hash", "pgrep", "nvidia-smi", "rocm-smi", "ping", "diff", "cmp", "nc",
           "curl", "wget", "mountpoint", "id")  # fmt: skip
"""commands whose success only a run shows"""
_READS = re.compile(r"\bread\s+(?:-\w+\s+|''\s+|\"\"\s+)*(\w+)[ \t]*$")
BUILTINS = (":", "true", "false", "eval", "shift", "set", "unset", "read", "mapfile", "readarray", "getopts", "shopt",
             "trap", "ulimit", "umask", "wait", "let", "cd", "pushd", "popd", "mkdir", "sleep")  # fmt: skip


@dataclass
class ShellScript:
    variables: dict[str, list[str]] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    sourced: list[str] = field(default_factory=list)
    """files it takes in that are not to be had"""
    directives: list[str] = field(default_factory=list)
    """words behind #SBATCH"""
    assumed: set[str] = field(default_factory=set)
    """variables that conditions ask for and nobody sets: taken as not set"""


def without_heredocs(text: str) -> str:
    kept, at = list[str](), 0
    while (start := _HEREDOC.search(text, at)) is not None:
        before = text[at : start.start()]
        end = re.compile(rf"^[ \t]*{re.escape(start[2])}[ \t]*$", re.MULTILINE).search(text, start.end())
        at = end.end() if end else len(text)
        if (variable := _READS.search(before)) is not None:
            # read -r -d '' NAME <<EOF: the text is what the variable holds, its lines joined as `read` joins them
            held = text[start.end() : end.start() if end else len(text)].replace('"', '\\"')
            before = f'{before[: variable.start()]}{variable[1]}="{held}"'
        kept.append(before)
    return "\n".join([*kept, text[at:]])


def joined_lines(text: str) -> str:
    """Lines that a backslash ends go on in the next one, but for comments, which end with their line."""
    return _PIECE.sub(lambda piece: "" if piece[0] == "\\\n" else _within(piece[0]), text)


def _within(piece: str) -> str:
    return piece.replace("\\\n", "") if piece.startswith('"') else piece


def slurm_variables(directives: list[str]) -> dict[str, str]:
    """Variables that Slurm sets by what a script asks of it."""
    asked: dict[str, str] = {}
    for number, word in enumerate(directives):
        name, equals, value = word.partition("=")
        following = directives[number + 1] if number + 1 < len(directives) else ""
        asked[name] = value if equals else following
    # of GPUs a type may stand before the number: mi250:8
    found = {
        variable: asked[name].rpartition(":")[2]
        for name, variables in SLURM.items()
        if name in asked
        for variable in variables
    }
    nodes, tasks = (found.get(name, "") for name in ("SLURM_NNODES", "SLURM_NTASKS_PER_NODE"))
    if re.fullmatch(r"\d{1,7}", nodes) and re.fullmatch(r"\d{1,4}", tasks):
        found |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), str(int(nodes) * int(tasks)))
    return {name: value for name, value in found.items() if re.fullmatch(r"\d{1,7}", value)}
