"""Layouts that others published: which model on which GPUs, split how, and how fast it was.

A file of catalog/layouts is one publication: what its runs share, what its program could not do, and the runs. A value
of a policy that was not published is a list of what it may have been.
"""

from itertools import product
from typing import Any, Literal

import msgspec
from msgspec import Struct

from shardwise import catalog
from shardwise.fields import converted
from shardwise.plugins.pipeline import usual_schedule
from shardwise.registry import closest
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import Stack, known_stack

Value = bool | int | str
OVERLAPS = ("overlap_grad", "overlap_param", "overlap_tp", "overlap_pp")
MOST_CANDIDATES = 200
_FIELDS = tuple(field.name for field in msgspec.structs.fields(Policy))


class ReportedSpeed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the publication says of the speed: one of these."""

    step_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    counts: Literal["", "6n_all", "6n_matmul", "full_square", "causal_half", "hardware"] = ""
    """which FLOPs the last two count"""

    def __post_init__(self) -> None:
        stated = [
            n for n in ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu") if getattr(self, n) is not None
        ]
        if len(stated) != 1 or not getattr(self, stated[0]) > 0:
            raise ValueError(f"reported: {', '.join(stated) or 'nothing'} is stated; write one speed above 0")
        if bool(self.counts) != (stated[0] in ("tflops_per_gpu", "mfu")):
            raise ValueError(f"reported: counts is {self.counts!r}; write which FLOPs tflops_per_gpu or mfu counts")

    def text(self) -> str:
        if self.step_s is not None:
            return f"{self.step_s:g} s per step"
        if self.tokens_per_s_per_gpu is not None:
            return f"{self.tokens_per_s_per_gpu:,g} tokens/s per GPU"
        rate = f"{self.tflops_per_gpu:g} TFLOP/s per GPU" if self.mfu is None else f"MFU {self.mfu:.0%}"
        return f"{rate} ({self.counts.replace('_', ' ')})"


class PublishedRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    model: str
    gpus: int
    global_batch: int
    reported: ReportedSpeed
    seq: int = 0
    """0: the publication's"""
    policy: dict[str, Value | list[Value]] = {}
    """on top of the publication's"""


class Publication(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    source: str
    date: str
    stack: str
    """the program it ran on, or the nearest known one"""
    fabric: str
    precision: str
    seq: int
    policy: dict[str, Value | list[Value]]
    runs: list[PublishedRun]
    allowed: dict[str, list[Value]] = {}
    """the only values of these fields the program could run"""
    lacks: dict[str, str] = {}
    """field of `allowed` -> what the program did not have, in words"""
    note: str = ""
    aliases: list[str] = []

    def __post_init__(self) -> None:
        for field in (*self.policy, *self.allowed, *self.lacks, *(name for run in self.runs for name in run.policy)):
            if field not in _FIELDS:
                raise ValueError(f"{field!r} is not a field of a policy; {closest(field, list(_FIELDS))}")
        for field in self.lacks:
            if field not in self.allowed:
                raise ValueError(f"lacks: {field!r} is not restricted; write its values under [allowed]")


class PublishedLayout(Struct, frozen=True, kw_only=True):
    """One run of one publication, as the planner's types."""

    name: str
    """publication/run"""
    title: str
    source: str
    date: str
    note: str
    model: str
    cluster: Cluster
    job: Job
    stack: Stack
    candidates: tuple[Policy, ...]
    """more than one where the publication leaves something open"""
    open_fields: tuple[str, ...]
    """what it leaves open"""
    reported: ReportedSpeed
    allowed: dict[str, list[Value]]
    lacks: dict[str, str]


def published_runs(name: str | None = None) -> list[PublishedLayout]:
    """All runs; those of a publication ('llama-3'); or one ('llama-3/16k-gpus')."""
    if name is None:
        return [run for entry in catalog.names("layouts") for run in published_runs(entry)]
    entry, slash, wanted = name.partition("/")
    stem = catalog.resolve("layouts", entry)
    found = publication_from(catalog.entry("layouts", stem), f"layout {stem}")
    runs = [_published(stem, found, run) for run in found.runs if not slash or run.name == wanted.strip()]
    if not runs:
        known = [f"{stem}/{run.name}" for run in found.runs]
        raise ValueError(f"layout {name!r} is unknown; {closest(name, known)}")
    return runs


def publication_from(data: dict[str, Any], where: str) -> Publication:
    """The mapping of a file, checked; what is wrong is a ValueError that names it."""
    return converted(data, Publication, where, "what docs/catalog.md shows")


def _published(stem: str, found: Publication, run: PublishedRun) -> PublishedLayout:
    stack = known_stack(found.stack)
    stated = found.policy | run.policy
    return PublishedLayout(
        name=f"{stem}/{run.name}", title=found.title, source=found.source, date=found.date, note=found.note,
        model=run.model, cluster=cluster_of(f"{found.fabric}:{run.gpus}"),
        job=Job(seq=run.seq or found.seq, global_batch=run.global_batch, precision=precision_of(found.precision)),
        stack=stack, candidates=_candidates(stated, run.gpus, stack),
        open_fields=tuple(field for field, value in stated.items() if isinstance(value, list)),
        reported=run.reported, allowed=found.allowed, lacks=found.lacks,
    )  # fmt: skip


def _candidates(stated: dict[str, Value | list[Value]], gpus: int, stack: Stack) -> tuple[Policy, ...]:
    """Data parallelism is what is left of the GPUs, overlap the stack's, unless stated."""
    choices = [value if isinstance(value, list) else [value] for value in stated.values()]
    found = []
    for values in list(product(*choices))[:MOST_CANDIDATES]:
        policy: dict[str, Any] = dict(zip(stated, values, strict=True))
        split = policy.get("tp", 1) * policy.get("pp", 1) * policy.get("cp", 1)
        implied = {
            "dp": max(gpus // split, 1), "sp": policy.get("tp", 1) > 1,
            "schedule": usual_schedule(policy.get("vpp", 1)),
            **stack.overlaps,
        }  # fmt: skip
        found.append(msgspec.convert(implied | policy, Policy))
    return tuple(found)
