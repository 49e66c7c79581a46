"""Facts of a run that few tables have columns for: which modules recompute, which loss, what is offloaded, in what
weights, moments and gradients are kept, how tokens reach their experts.

A column of that name states them; else the notes do, as `name=value` or in the words of a recipe."""

import re
from dataclasses import dataclass

from msgspec.structs import replace

from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.job import Precision, with_grad_dtype
from shardwise.spec.policy import COPY, LOSS, MODULES, OFFLOAD
from shardwise.spec.software import Stack, match_of
from shardwise.spec.software.dispatcher import DISPATCH, beside_another_batch, with_dispatcher
from shardwise.spec.software.graphs import GRAPHS, with_graphs
from shardwise.spec.software.words import with_words

_RECOMPUTES = re.compile(r"\brecompute ([a-z_]+(?:\+[a-z_]+)*)")
_LAYERS_AWAY = re.compile(r"offloads? activations of (\d+)-(\d+) layers")
_MORE_AWAY = re.compile(r"offloads (\d+) layers")
_SOME_AWAY = re.compile(r"\+ CPU offload")
_CAPACITY = re.compile(r"\bcapacity(?:[ _-]factor)?[ =]*(\d+(?:\.\d+)?)", re.IGNORECASE)
_INTERLEAVED = re.compile(r"(?<!no )(?<!not )(?<!without )\binterleav", re.IGNORECASE)
_DISPATCHER = re.compile(r"\b(all-to-all|allgather) dispatcher|\b(DeepEP|HybridEP)\b")
_SHARING = re.compile(r"\bzero1=(\d+)")
_CARDS = re.compile(r"\b(\d{1,2}) x [\d.]+ ?Gb(?:/s|ps)?\b[^;,]*\bper node\b")
_LINK_LAYER = re.compile(r"\b(omni)-?path\b|\bEFA\b", re.IGNORECASE)
_LOCAL_BATCH = re.compile(r"\blocal batch (\d+)")
_MOMENTS = re.compile(r"\bmoments in (bf16|fp32)\b")
_YEAR = re.compile(r"\b20[12]\d\b")
_WRITTEN = re.compile(r"(?<!\d)(20[12]\d)[-_]?(?:0[1-9]|1[0-2])(?!\d)")
_EXCHANGE_BESIDE = re.compile(r"\b1f1b overlap\b")
_PARTS_REPLAYED = re.compile(r"\bpartial (?:cuda )?graphs?\b|\bcuda graphs? of attention\b", re.IGNORECASE)
FSDP = "fsdp"
UNCUT = ("", "0", "none", "ddp")
"""cells of a run that shards nothing"""
MOST_CHUNKS = 8
"""of a stage that are tried where nobody tells"""
LAYERS_AWAY = (5, 10, 20, 30, 40)
"""of the numbers a range of notes allows, those that are tried"""


@dataclass(frozen=True)
class Offloading:
    what: str
    share: float = 1.0

    def __str__(self) -> str:
        return self.what if self.share == 1 else f"{self.what} {self.share:.0%}"


def dated_software(row: MeasuredRow) -> str:
    """The text of its software, with the year of the publication where the text has none and that tells which release
    of the program ran."""
    software, written = row.word("software"), _WRITTEN.search(row.word("source_ref"))
    if written is None or _YEAR.search(software):
        return software
    dated = f"{match_of(software).piece} {written[1]}"
    return f"{software}, {dated}" if match_of(dated).piece == dated else software


def named_modules(row: MeasuredRow) -> tuple[str, ...]:
    """What selective recompute repeated; empty: not told."""
    stated = _stated(row, "recompute_modules")
    words = stated or (found[1] if (found := _RECOMPUTES.search(row.word("notes"))) else "")
    names = [word for word in re.split(r"[+,\s]+", words) if word]
    if stated and names != ["none"]:
        for name in names:
            if name not in MODULES:
                raise ValueError(
                    f"row {row.row}: recompute_modules has {name!r}; write names of {', '.join(MODULES)} joined by +"
                )
    return tuple(dict.fromkeys(names)) if all(name in MODULES for name in names) else ()


def recomputed_layers(row: MeasuredRow, per_stage: int) -> int:
    """Layers of a stage that recompute; -1: all, where nothing else is told."""
    stated = _stated(row, "recompute_layers")
    if not stated:
        return -1
    if not stated.isdigit():
        raise ValueError(f"row {row.row}: recompute_layers is {stated!r}; write how many layers of a stage recompute")
    return min(int(stated), per_stage)


def chunks_of_a_stage(row: MeasuredRow, stack: Stack, per_stage: int) -> list[int]:
    """Numbers of them that the run may have had."""
    stated = row.whole("vpp")
    if stated:
        return [stated]
    asked = stack.abilities.interleaves_unasked or _INTERLEAVED.search(f"{row.word('software')} {row.word('notes')}")
    able = {"interleaved", "all"} & set(stack.abilities.schedules)
    most = MOST_CHUNKS if asked and able and (row.whole("pp") or 1) > 1 else 1
    return [v for v in range(1, most + 1) if per_stage % v == 0]


def shown_beside(row: MeasuredRow, stack: Stack) -> float:
    """Bytes that the driver's tool shows beside what a program's own counters do: CUDA context, communication."""
    return stack.memory.reserve_bytes if "nvidia-smi" in row.word("notes") else 0.0


def named_loss(row: MeasuredRow) -> str:
    return _one_of(row, "loss", LOSS)


def offloads(row: MeasuredRow, layers: int) -> tuple[Offloading, ...]:
    """What may have been in the host's memory: one, or all that the notes leave open."""
    stated, share = _one_of(row, "offload", OFFLOAD), row.number("offload_share")
    if stated:
        return (Offloading(stated, 1.0 if share is None else share),)
    notes = row.word("notes")
    if found := _LAYERS_AWAY.search(notes):
        tried = [n for n in LAYERS_AWAY if int(found[1]) <= n <= int(found[2])]
        tried += [int(n) for n in _MORE_AWAY.findall(notes)]
        shares = [round(n / layers, 3) for n in tried if n <= layers]
        return (Offloading("none"), *(Offloading("activations", share) for share in shares))
    if _SOME_AWAY.search(notes):
        return tuple(Offloading(what) for what in OFFLOAD)
    return (Offloading("none"),)


def cards_of_a_node(row: MeasuredRow) -> int:
    """Network cards that the GPUs of a node share ("4 x 100 Gb RoCE per node"); 0: not told."""
    stated = row.whole("cards_per_node")
    found = _CARDS.search(row.word("notes"))
    return stated or (int(found[1]) if found else 0)


def link_layer_of(row: MeasuredRow) -> str:
    """Of its network, where that decides what is reached of it; empty: not told, or another."""
    found = _LINK_LAYER.search(row.word("notes"))
    return "" if found is None else "omni-path" if found[1] else "efa"


def sharding_of(row: MeasuredRow) -> str:
    """What its cells say of a replica that is cut over several GPUs, with its state or alone: nothing, FSDP alone, or
    anything else."""
    cell = row.word("zero_stage_or_fsdp").lower()
    if any((row.whole(axis) or 1) > 1 for axis in (*COPY, "ep")):
        return "model"
    return "" if cell in UNCUT else FSDP if FSDP in cell else "zero"


def sharing_ranks(row: MeasuredRow, replicas: int) -> int:
    """Consecutive replicas that share one copy of the optimizer's state, as InternEvo's `zero1` says; 0: all."""
    found = _SHARING.search(row.word("notes"))
    ranks = int(found[1]) if found else 0
    return ranks if 0 < ranks < replicas and replicas % ranks == 0 else 0


def flushes(row: MeasuredRow, stages: int, batch: int, replicas: int) -> int:
    """Times a step fills and drains its pipeline: PyTorch's schedules run one local batch after the other (NeMo
    AutoModel, torchtitan), with what is gathered before each and reduced behind it."""
    found = _LOCAL_BATCH.search(row.word("notes"))
    each = int(found[1]) * replicas if found and stages > 1 else 0
    return batch // each if each and batch % each == 0 else 1


def with_stated_state(row: MeasuredRow, precision: Precision) -> Precision:
    """What an optimizer keeps of each parameter."""
    found = _MOMENTS.search(row.word("notes"))
    kept = {"bf16": 2.0, "fp32": 4.0}[found[1]] if found else precision.moment_bytes
    if kept == precision.moment_bytes:
        return precision
    return replace(precision, name=f"{precision.name}-moments{8 * kept:.0f}", moment_bytes=kept)


def with_stated_gradients(row: MeasuredRow, precision: Precision) -> Precision:
    dtype = _stated(row, "grad_dtype")
    return with_grad_dtype(precision, dtype) if dtype else precision


def with_stated_words(row: MeasuredRow, stack: Stack) -> Stack:
    """The kernel of its attention and how evenly tokens fall on experts, in the words a `software` text has for them:
    in notes they stand for nothing else."""
    return with_words(stack, row.word("notes"), about=("attention", "balance"))[0]


def with_stated_dispatcher(row: MeasuredRow, stack: Stack) -> Stack:
    """The program as the run replayed graphs and exchanged tokens: by which dispatcher, and beside the compute of
    another micro-batch or not."""
    stated, notes = _one_of(row, "dispatcher", tuple(DISPATCH)), row.word("notes")
    if not stated and (found := _DISPATCHER.search(notes)):
        stated = (found[2] or found[1]).lower().replace("-", "")
    if stated:
        stack = with_dispatcher(stack, stated)
    graphs = _one_of(row, "graphs", tuple(GRAPHS))
    if not graphs and _PARTS_REPLAYED.search(f"{row.word('software')}; {notes}"):
        graphs = "partial"
    if graphs:
        stack = with_graphs(stack, graphs)
    if found := _CAPACITY.search(f"{row.word('software')}; {notes}"):
        stack = stack.changed(capacity_factor=float(found[1]))
    if _EXCHANGE_BESIDE.search(notes):
        stack = beside_another_batch(stack)
    return stack


def _one_of(row: MeasuredRow, name: str, known: tuple[str, ...]) -> str:
    stated = _stated(row, name)
    if stated and stated not in known:
        raise ValueError(f"row {row.row}: {name} is {stated!r}; write {', '.join(w for w in known if w)}, or nothing")
    return stated


def _stated(row: MeasuredRow, name: str) -> str:
    """The cell, or `name=value` in the notes."""
    stated, notes = row.word(name).lower(), row.word("notes")
    if stated or name not in notes:
        return stated
    found = re.search(rf"(?:^|[;,\s]){name}=([\w+]+)", notes)
    return found[1].lower() if found else ""
