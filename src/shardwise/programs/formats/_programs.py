"""Which program a command starts: `torchrun ... -m verl.trainer.main_ppo` starts verl, whatever its options are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from shardwise.programs.formats._shell_words import is_open

COMMANDS = frozenset({
    "swift", "megatron", "llamafactory-cli", "lmf", "axolotl", "tune", "litgpt", "xtuner", "trl", "automodel", "nemo",
    "nemorun", "colossalai", "composer", "sft", "rl", "trainer", "orchestrator", "openrlhf", "oumi", "h2o-llmstudio",
    "fairseq-hydra-train", "lmflow", "primus-cli", "torchtitan", "unsloth",
})  # fmt: skip
"""programs that installed themselves as a command"""
LAUNCHING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed",
                     "deepspeed.launcher.runner", "torch_xla.distributed.xla_dist")  # fmt: skip
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "srun", "mpirun", "colossalai", "uv")
VERB = re.compile(r"[a-z][a-z_-]{1,30}")
UNTRAINED = re.compile(
    r".*(?:infer|eval|export|deploy|generat|convert|merge|download|preprocess|tokeniz|benchmark|serve|server|sample|"
    r"rollout|plot|setup|install|upload|lint|test_).*"
)
"""commands beside the training that a script may hold"""


@dataclass(frozen=True)
class Started:
    """A command, cut where its program begins."""

    program: str = ""
    """script, module, or command with its verb; empty: not known"""
    launcher: tuple[str, ...] = ()
    """words before the program"""
    arguments: tuple[str, ...] = ()

    @property
    def options(self) -> int:
        pattern = r"--?[A-Za-z]|[+~]{0,2}[A-Za-z][\w./@]*="
        return sum(bool(re.match(pattern, word)) for word in self.arguments)

    @property
    def launched(self) -> bool:
        return any(PurePosixPath(word).name in LAUNCHERS or word in LAUNCHING_MODULES for word in self.launcher)


def started(words: Sequence[str]) -> Started:
    if "--" in words[1:-1]:
        # a cluster's own command, which starts the one behind it: ray job submit ... -- python3 train.py
        cut = list(words).index("--", 1)
        inner = started(words[cut + 1 :])
        if inner.program:
            return Started(inner.program, (*words[:cut], *inner.launcher), inner.arguments)
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        following = words[number + 1] if number + 1 < len(words) else ""
        if word in ("-m", "--module") and following:
            if following not in LAUNCHING_MODULES:
                return _cut(words, following, number, 2)
        elif is_open(word):
            if word.endswith(".py"):
                return _cut(words, name, number, 1)
            if (
                number > 1
                and not word.startswith("-")
                and not words[number - 1].startswith("-")
                and Started("", tuple(words[:number])).launched
            ):
                return _cut(words, "", number, 1)  # behind an option and its value: a script that the environment names
        elif name in COMMANDS and (number == 0 or not words[number - 1].startswith("--")):
            if name == "colossalai":
                continue
            verb = following if VERB.fullmatch(following) else ""
            return _cut(words, f"{name} {verb}".strip(), number, 2 if verb else 1)
        elif word.endswith(".py") and "=" not in word:
            return _cut(words, word, number, 1)
    return Started("", (), tuple(words))


def _cut(words: Sequence[str], program: str, at: int, long: int) -> Started:
    return Started(program, tuple(words[:at]), tuple(words[at + long :]))


NOTHING_STARTED = Started()
