"""`shardwise search cuts`: which way to cut every matrix of a block, a chain or a graph of products."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.cuts import cuts_answer
from shardwise.cost.calibrate.profile import Profile
from shardwise.plan.search.cut_study import study
from shardwise.plan.search.problems.cuts import BLOCKS, CutGraph, block_of, chain, graph_from_file, machine_at
from shardwise.question.job import DEFAULT_PRECISION, sequence_of, software_of
from shardwise.registry import closest
from shardwise.show.cli._flags import Flags, on_of, without_effect
from shardwise.show.cli._options import Json, flags, of_table, profile_or_none, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import bar
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Precision, usual_precision, usual_sequence
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.parameters import MODEL, check_options
from shardwise.spec.software import Stack
from shardwise.step.estimate.machine import Machine
from shardwise.units import bytes_of, count_of, sequence_tokens

TOKENS = 8192
MOST_RANKS = 4096
MOST_TOKENS = 10**9
MOST_SIZES = 65
WIDEST = 10**7
MOST_TOP = 20


@flags
class CutFlags(Flags):
    tp: Annotated[int | None, of_table("tp", help="Ranks the matrices are cut over.", default="8")] = None
    tokens: Annotated[str | None, of_table("tokens", help="Tokens of a micro-batch; default 8192.")] = None
    seq: Annotated[str | None, of_table("seq", help=(
        "Tokens of a sequence; default: the model's own; a chain or a graph: all of them are one."
    ))] = None  # fmt: skip


EFFECTIVE = ("nic", "profile", "stack", "precision", "dispatcher", "seq", "tokens", "tp")
"""parameters that change what a cut of one block costs"""


def cuts(
    model: Annotated[str | None, Parameter(help=MODEL)] = None,
    /,
    *,
    given: CutFlags,
    block: Annotated[str | None, Parameter(help="attention, mlp, moe or layer (default) of the model.")] = None,
    sizes: Annotated[str | None, Parameter(name="--chain", help="Sizes of y = W3 W2 W1 x, as 4096,16384,4096.")] = None,
    file: Annotated[Path | None, Parameter(name="--graph", help="A graph of GEMMs, as a YAML file.")] = None,
    ends: Annotated[
        str | None,
        Parameter(
            help="How x and y lie: replicated, tokens, features, any (of the first two); default: any, for a "
            "chain or file replicated."
        ),
    ] = None,
    accumulate: Annotated[int, Parameter(help="Micro-batches per sum of weight gradients."), within(1, 10**6)] = 1,
    memory: Annotated[str | None, Parameter(help="Most weights a rank may hold, as '200 MiB'.")] = None,
    top: Annotated[int, Parameter(help="Next best cuts to show."), within(0, MOST_TOP)] = 3,
    method: Annotated[str, Parameter(help="A method of `search`; auto: dp for chains, else ip.")] = "auto",
    json: Json = False,
) -> int:
    """Cost of every cut with its collectives, forward and backward, inside a fast domain and across nodes."""
    tp = 8 if given.tp is None else given.tp
    if not 2 <= tp <= MOST_RANKS:
        raise ValueError(f"tp: {tp} is out of range; write a whole number from 2 to {MOST_RANKS:,}")
    check_options(given)
    cluster, notes = cluster_of(on_of(given)), without_effect(given, "the cut of one block", *EFFECTIVE)
    shape = None if model is None else model_of(model)
    software = software_of(given, shape, cluster.gpu)
    recipe = software.precision(given.precision or (DEFAULT_PRECISION if shape is None else usual_precision(shape)))
    sequences, length = _tokens(given.tokens, given.seq, shape, notes)
    graph = _graph(shape, block, sizes, file, tp, sequences, length, recipe)
    places = _places(cluster, software, recipe, tp, profile_or_none(given.profile), notes)
    limit = float("inf") if memory is None else bytes_of(memory, "memory")
    held = _ends(ends, graph, tp, sizes is not None or file is not None)
    with bar("cuts") as progress:
        found = study(graph, places, ends=held, top=top, most_bytes=limit, accumulate=accumulate,
                      method=None if method == "auto" else method, progress=progress)  # fmt: skip
    answer = cuts_answer(
        found, cluster=cluster.name, gpu=cluster.gpu.name, tp=tp, sequences=sequences, seq=length,
        precision=recipe.name, stack=software.name, accumulate=accumulate, most_bytes=limit, notes=notes,
    )  # fmt: skip
    return answered(answer, json)


def _tokens(tokens: str | None, seq: str | None, model: Model | None, notes: list[str]) -> tuple[int, int]:
    """(sequences, tokens of each)."""
    count = TOKENS if tokens is None else count_of(tokens, "tokens")
    if tokens is None:
        notes.append(f"--tokens not given: {TOKENS:,} assumed")
    if not 1 <= count <= MOST_TOKENS:
        raise ValueError(f"tokens: {tokens!r} is out of range; write a whole number from 1 to {MOST_TOKENS:,}")
    length = count if seq is None else sequence_tokens(seq, "seq")
    if model is not None and model.sample_tokens:
        length = sequence_of(model, seq, notes)
        count = max(count // length, 1) * length if tokens is None else count
    elif seq is None and model is not None and count % usual_sequence(model) == 0:
        length = sequence_of(model, None, notes)
    if length < 1 or count % length:
        raise ValueError(f"seq: {length:,} does not divide {count:,} tokens; write a divisor of --tokens")
    return count // length, length


def _graph(
    model: Model | None, block: str | None, sizes: str | None, file: Path | None, tp: int, sequences: int, seq: int,
    precision: Precision,
) -> CutGraph:  # fmt: skip
    if sum(given is not None for given in (model, sizes, file)) != 1:
        raise ValueError("what to cut: write one of a model, --chain 4096,16384,4096 and --graph FILE.yaml")
    if block is not None and model is None:
        raise ValueError("block: only a model has blocks; leave --block out")
    if sizes is not None:
        return chain(_sizes(sizes), tp, sequences * seq, precision)
    if file is not None:
        return graph_from_file(file, tp, sequences, seq, precision)
    assert model is not None
    block = block or "layer"
    if block not in BLOCKS:
        raise ValueError(f"block: {block!r} is unknown; {closest(block, list(BLOCKS))}")
    return block_of(model, block, tp, sequences, seq, precision)


def _sizes(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    plain = all(word.isascii() and word.isdigit() and len(word) <= 8 and 0 < int(word) <= WIDEST for word in words)
    if not plain or not 2 <= len(words) <= MOST_SIZES:
        raise ValueError(
            f"chain: {text[:40]!r} is not a list of 2 to {MOST_SIZES} widths up to {WIDEST:,}; "
            "write for example 4096,16384,4096"
        )
    return [int(word) for word in words]


def _ends(text: str | None, graph: CutGraph, tp: int, bare: bool) -> tuple[str, ...]:
    dealt = ("replicated", "tokens") if graph.tokens % tp == 0 else ("replicated",)
    if text is None:
        return ("replicated",) if bare else dealt
    return dealt if text == "any" else (text,)


def _places(
    cluster: Cluster, software: Stack, precision: Precision, tp: int, measured: Profile | None, notes: list[str]
) -> dict[str, Machine]:
    """Ranks side by side; and one in each fast domain, where the cluster has so many."""
    if tp > cluster.gpus:
        raise ValueError(f"tp: {tp} ranks need {tp} GPUs, {cluster.name} has {cluster.gpus}; write fewer")
    near, node = cluster.levels[0], cluster.node_size
    name = {"nvlink": "NVLink", "pcie": "PCIe"}.get(near.kind, near.name) if tp <= node else "packed"
    if tp > node:
        notes.append(f"packed: {tp} neighbouring GPUs, {node} in a fast domain")
    places = {name: machine_at(cluster, software, precision, tp, 1, measured)}
    if node > 1 and tp * node <= cluster.gpus:
        places["nodes"] = machine_at(cluster, software, precision, tp, node, measured)
    else:
        notes.append(f"across nodes is not priced: {tp} ranks, one in each fast domain of {node}, need "
                     f"{tp * node:,} GPUs and {cluster.name} has {cluster.gpus:,}")  # fmt: skip
    return places
