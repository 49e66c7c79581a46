"""A torchrun command as it is written for one machine, started once on every GPU of a lab.

Each GPU is a machine of its own there, so how many there are and where they meet is the lab's to say, by torchrun's own
variables (PET_...): options that say so are taken out, and their number of ranks must be the lab's.
"""

import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import PurePath

from shardwise.interpreter import program_beside, python_command

WHERE = ("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "rdzv-backend", "rdzv-endpoint",
         "rdzv-id", "rdzv-conf", "local-addr", "standalone")  # fmt: skip
ALONE = ("standalone", "m", "module", "no-python", "run-path", "use-env", "h", "help", "virtual-local-rank")
"""options without a value"""
MODULES = ("torch.distributed.run", "torch.distributed.launch")


def spread_out(command: Sequence[str], gpus: int) -> tuple[list[str], str]:
    """(the command for each GPU, what was taken out of it); any other command as it is."""
    first = _options_begin(command)
    if not first:
        return list(command), ""
    kept, taken, place = list(command[:first]), dict[str, str](), first
    while place < len(command) and command[place].startswith("-") and command[place] != "--":
        name, equals, value = command[place].lstrip("-").replace("_", "-").partition("=")
        words = 1 if equals or name in ALONE else 2
        if name in WHERE:
            taken[name] = value if equals else " ".join(command[place + 1 : place + words])
        else:
            kept += command[place : place + words]
        place += words
    _check(taken, gpus)
    told = ", ".join(f"--{name}{f' {value}' if value else ''}" for name, value in taken.items())
    return [*kept, *command[place:]], told


def at_hand(command: Sequence[str]) -> list[str]:
    """With a program that is there: a torchrun that is not on the path is this Python's own."""
    name = command[0]
    beside = program_beside(name)
    if shutil.which(name) or os.sep in name:
        return list(command)
    if shutil.which(beside):
        return [beside, *command[1:]]
    if name == "torchrun" and find_spec("torch") is not None:
        return python_command(MODULES[0], *command[1:])
    raise ValueError(f"command: {name[:60]!r} is not found; write the path of a program")


def _options_begin(command: Sequence[str]) -> int:
    """0 where it is no torchrun."""
    if command and PurePath(command[0]).name == "torchrun":
        return 1
    for place, word in enumerate(command[:4]):
        if word == "-m" and command[place + 1 : place + 2] and command[place + 1] in MODULES:
            return place + 2
    return 0


def _check(taken: dict[str, str], gpus: int) -> None:
    each = taken.get("nproc-per-node", "")
    nodes = taken.get("nnodes", "1").rpartition(":")[2]
    if not each.isdigit() or not nodes.isdigit() or len(each) > 6 or len(nodes) > 6:
        return  # auto, gpu, or nothing said: one for each GPU
    if int(each) * int(nodes) != gpus:
        raise ValueError(
            f"command: torchrun asks for {int(each) * int(nodes)} ranks, the lab has {gpus} GPUs; write "
            f"--nproc-per-node {gpus}, or leave it out"
        )
