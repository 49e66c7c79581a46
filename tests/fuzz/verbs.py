"""Command lines: a line that is right for the verb, with one to three options of it set to something else."""

import types
import typing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Protocol

from cyclopts import App

from fuzz.samples import SPECIAL, launch_files
from fuzz.values import number, text
from shardwise.show.cli._frame import app
from shardwise.show.cli._installed import add_verb, installed_verbs
from shardwise.show.cli._verbs import VERBS

FEW_MODELS = ("llama-3-8b", "gpt2-xl", "mixtral-8x7b", "config.json", "mlp.json")
FEW_CLUSTERS = ("8xh100", "2x8xa100-80", "dgx-h100:16", "1xh100", "site.yaml")
USUAL = {
    "MODEL": FEW_MODELS, "MODELS": FEW_MODELS, "ON": FEW_CLUSTERS, "PLAN": (*FEW_MODELS, "plan.json", "estimate.json"),
    "WHAT": ("batch", "sequence", "model"), "ACTION": ("list", "cost", "simulate"),
    "OVER": ("micro=1:2", "batch=64:128"),
    "DATA": ("runs.csv", "text.txt", "examples.npz"), "SCRIPT": ("script.py",), "OUT": ("new.toml",),
    "NAME": ("psgd", "local_sgd", "h100", "dgx-h100"), "GLOBAL": ("64",), "SEQ": ("1024",), "TPS": ("380",),
    "PROBLEM": ("stages", "ranks", "experts", "cuts", "joint"), "METHOD": ("dp", "ip", "exhaustive", "rl", "zo"),
    "FROM": ("nccl.txt", "nccl.json", "titan.log", "megatron.log", "trace.json", "topology.xml", "matrix.txt"),
    "PROFILE": ("profile.toml",), "PAIRS": ("pairs.csv", "pairs.json", "nccl.json"), "HOSTS": ("hosts.txt",),
    "FILE": ("nccl.txt", "nccl.json"), "GRAPH": ("links.yaml", "products.yaml"), "PRICES": ("prices.toml",),
    "ROUTING": ("routing.txt",), "FAILED": ("runs.csv",), "TOKENIZER": ("tokenizer.json",), "EVAL-DATA": ("text.txt",),
    "TOPOLOGY": tuple(f"site-{name}" for name in ("topology.conf", "topology.yaml", "ib.txt", "ufm.json", "nodes.csv")),
    "FREE": ("n[00-07]", "all", "hosts.txt"),
    "RUN": ("megatron-run.log", "torchtitan-run.log", "huggingface-run.log", "olmo-run.log", "steps.csv", "rank0.json",
            "dump_0", "job.sqlite", "clocks.csv", "run.pftrace", "trace.json", "folder"),
    "CONFIG": ("train.sh",), "FOLDER": ("saved", "folder", "."), "COUNTERS": ("pairs.csv", "nccl.txt"),
    "CHECKPOINTS": ("saved",), "GATHER": ("facts.json",), "TRIAL": ("megatron-run.log", "rank0.json"),
    "ONLY": ("host", "gpus,plan", "xid"), "SKIP": ("host", "measured"),
    "FILES": tuple(launch_files()), "TO": ("megatron", "torchtitan"),
    "BUDGET": ("100", "8 GPUs"), "POLICY": ("fsdp", "tp=2"), "CHAIN": ("64,256,64",), "GPU": ("h100",),
    "TUNE": ("lora", "qlora,rank=8", "dora,targets=mlp", "lora,targets=q_proj,v_proj"),
    "FREEZE": ("first=2", "embeddings", "embeddings,first=1"),
    "METHODS": ("dp", "exhaustive"), "MIXED": ("4xa100-80", "8xh100"), "LINK": ("100 Gbps",), "RENT": ("2.5", "2,1"),
    "MEASURE-WITH": ("true {tp}",), "MEASURE-LIMIT": ("5 s",), "LEARNED": ("new.toml",),
    "LENGTHS": ("lognormal,mean=600,sigma=1", "uniform,low=1,high=99"), "PACKING": ("on", "off"),
}  # fmt: skip
"""what an argument or option of this name usually takes; one that is not here gets what its type takes"""
NEVER = ("--help", "-h", "--version")
ALWAYS = {"watch": ("--once",), "serve": ("--list",)}
"""what a line of a verb has that would wait for somebody else otherwise"""


@dataclass(frozen=True)
class Option:
    name: str
    spellings: tuple[str, ...]
    kind: type
    required: bool
    positional: bool


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    options: tuple[Option, ...]


@cache
def commands() -> tuple[Command, ...]:
    """Every verb and every sub-command of one, with its options as cyclopts has them."""
    for verb in installed_verbs():
        add_verb(app, verb)
    return tuple(found for verb in (*VERBS, *installed_verbs()) for found in _commands(app[verb], (verb,)))


def _commands(one: App, words: tuple[str, ...]) -> list[Command]:
    found = []
    if one.default_command is not None:
        listed = one.assemble_argument_collection()
        options = [
            Option(
                each.names[0].lstrip("-").upper(), each.names, _kind(each.hint), each.required,
                not each.names[0].startswith("-"),
            ) for each in listed if each.names != ("*",)
        ]  # fmt: skip
        found.append(Command(words, tuple(options)))
    for name in one:
        if name not in NEVER:
            found += _commands(one[name], (*words, name))
    return found


def _kind(hint: object) -> type:
    """str, int, float, bool or Path, whatever it is a list of or optional in."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint
    inner = [each for each in typing.get_args(hint) if each not in (types.NoneType, Ellipsis)]
    return _kind(inner[0]) if inner else str


class Files(Protocol):
    names: list[str]
    """of right files"""

    def odd(self, name: str) -> str:
        """The name of a damaged copy."""


def usual(option: Option, random: Random, files: Files) -> list[str]:
    """The option as somebody would write it."""
    if option.kind is bool:
        return [random.choice(option.spellings)]
    if option.name in USUAL:
        value = random.choice(USUAL[option.name])
    elif option.kind is Path:
        value = random.choice(files.names)
    else:
        value = {int: "1", float: "0.5"}.get(option.kind, "a")
    return [value] if option.positional else [option.spellings[0], value]


def odd(option: Option, random: Random, files: Files) -> list[str]:
    """The option as nobody should."""
    how = random.random()
    read = [name for name in USUAL.get(option.name, ()) if name in files.names]
    if read and how < 0.7:
        value = files.odd(random.choice(read))
    elif option.kind is Path or (option.kind is str and how < 0.15):
        value = random.choice([files.odd(random.choice(files.names)), random.choice(list(SPECIAL.values()))])
    elif (option.kind in (int, float) and how < 0.85) or how < 0.1:
        value = number(random)
    elif how < 0.5 and option.name in USUAL:
        value = random.choice(USUAL[option.name]) + random.choice(("", ":", "x", ",", " ", "0", "\x00"))
    else:
        value = text(random)
    if option.kind is bool:
        return [random.choice(option.spellings), *([value] if how < 0.3 else [])]
    return [value] if option.positional else [random.choice(option.spellings), value]


@cache
def file_options(names: tuple[str, ...]) -> tuple[tuple[Command, Option], ...]:
    """Every option that reads a file of a kind there is a sample of."""
    return tuple(
        (command, option)
        for command in commands()
        for option in command.options
        if set(USUAL.get(option.name, ())) & set(names)
    )


def file_line(command: Command, read: Option, random: Random, files: Files) -> list[str]:
    """A line that is right but for the file that one option names."""
    words = [*command.words, *ALWAYS.get(command.words[0], ())]
    for option in command.options:
        if option == read:
            odd_file = files.odd(random.choice([name for name in USUAL[option.name] if name in files.names]))
            words += [odd_file] if option.positional else [option.spellings[0], odd_file]
        elif option.required:
            words += usual(option, random, files)
    return words


def line(command: Command, random: Random, files: Files) -> list[str]:
    changed = random.sample(command.options, min(len(command.options), random.choice((0, 1, 1, 1, 2, 2, 3))))
    words = [*command.words, *ALWAYS.get(command.words[0], ())]
    for option in command.options:
        if option in changed:
            if random.random() < (0.99 if option.positional else 0.95):
                words += odd(option, random, files)
        elif option.required or random.random() < (1.0 if option.positional else 0.06):
            words += usual(option, random, files)
    if random.random() < 0.03:
        words.insert(random.randrange(len(words) + 1), text(random))
    return words
