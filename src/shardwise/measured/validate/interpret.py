"""A measured row -> the Model, Cluster, Job, Stack and candidate Policies it describes.

Cells a source left empty take a stated default; where the source tuned something it did not publish (micro-batch,
interleaving, recompute), the candidates are listed and the best predicted one that fits is taken. Every such choice is
written in `assumed`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import msgspec

from shardwise.measured.validate.facts import (
    FSDP,
    cards_of_a_node,
    chunks_of_a_stage,
    dated_software,
    flushes,
    link_layer_of,
    named_loss,
    named_modules,
    offloads,
    recomputed_layers,
    sharding_of,
    sharing_ranks,
    with_stated_dispatcher,
    with_stated_gradients,
    with_stated_state,
    with_stated_words,
)
from shardwise.measured.validate.models import catalog_model, cut
from shardwise.measured.validate.networks import UsualNetwork, usual_network
from shardwise.measured.validate.table import MeasuredRow
from shardwise.plugins.pipeline import usual_schedule
from shardwise.spec.arch import model_from_shape
from shardwise.spec.arch._fields import MOST_LAYERS
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from, gpu_of
from shardwise.spec.model import Model
from shardwise.spec.policy import COPY, RECOMPUTE, Policy
from shardwise.spec.reported import catalog_gpu
from shardwise.spec.software import Stack, known_stack, match_of, named, stack_for

WITHOUT_RECOMPUTE = ("vTrain-single",)
"""sources whose own times rule out the recomputation their table states (docs/decisions/0019)"""
PADDING = 0.02
"""of a model's vocabulary: a stated one may be so much smaller and still be the same, before it is padded"""
LITTLE_MEMORY = 100e9
"""of a GPU on which expert models are trained one sequence at a time: 51 of the 62 runs of steps.csv, steps_more.csv
and three tables found later that tell their micro-batch (45 of 50 by Megatron's programs)"""
READ_OTHERWISE = "recompute=none (the source's times rule out what its table states)"
"""what is assumed of such a row"""


class UnsupportedRow(Exception):
    """The row describes something the model of work does not cover; the text says what."""


@dataclass(frozen=True)
class MeasuredCase:
    measured: MeasuredRow
    model: Model
    cluster: Cluster
    job: Job
    stack: Stack
    candidates: tuple[Policy, ...]
    assumed: tuple[str, ...]
    rows: int = 1
    """of the table that say the same was run"""
    unstated: "UnstatedNetwork | None" = None
    """the network between its nodes, where the row does not state it"""


class UnstatedNetwork(NamedTuple):
    usual: UsualNetwork
    slow: Cluster
    """the run's cluster with the slow one of the usual networks"""
    middle: Cluster
    fast: Cluster


@dataclass
class _Reader:
    row: MeasuredRow
    assumed: list[str] = field(default_factory=list)
    unstated: UnstatedNetwork | None = None

    def degree(self, column: str, default: int) -> int:
        value = self.row.whole(column)
        if value is None:
            self.assumed.append(f"{column}={default}")
            return default
        return max(value, 1)


def measured_case(row: MeasuredRow, stack_name: str = "auto") -> MeasuredCase:
    reader = _Reader(row)
    stack = _stack(reader) if stack_name == "auto" else known_stack(stack_name)
    stack = with_stated_words(row, with_stated_dispatcher(row, stack))
    model = _model(reader)
    if stack.trained(model) is not model:
        reader.assumed.append("extra prediction layers not trained")
    cluster = _cluster(reader)
    dtype = row.word("dtype").lower() or "bf16"
    batch = row.whole("global_batch")
    seq = row.whole("seq")
    if not seq:
        raise UnsupportedRow("seq is not stated")
    layout = _layout(reader, cluster.gpus)
    if not batch:
        batch = layout["dp"] * (row.whole("micro_batch") or 1) * max(4 * layout["pp"], 1)
        reader.assumed.append(f"global_batch={batch} (not published)")
    precision = with_stated_gradients(row, with_stated_state(row, stack.precision_for(dtype)))
    times = flushes(row, layout["pp"], batch, layout["dp"])
    if times > 1:
        reader.assumed.append(f"the pipeline fills and drains {times} times")
    job = Job(seq=seq, global_batch=batch, precision=precision, pipeline_passes=times)
    candidates = tuple(_candidates(reader, model, job, stack, layout, _plain_attention(reader, stack)))
    return MeasuredCase(row, model, cluster, job, stack, candidates, tuple(reader.assumed), unstated=reader.unstated)


def stated_stack(row: MeasuredRow) -> Stack:
    """As the text of its software has it. Of a program that runs PyTorch and of which no more is known, a cell that
    says FSDP means PyTorch's."""
    software, sharding = dated_software(row), sharding_of(row)
    if sharding == FSDP and match_of(software).platform:
        software = f"{software}, {FSDP}"
    return stack_for(software, sharded=bool(sharding))


def _stack(reader: _Reader) -> Stack:
    """As the row states it; what else its notes may say of kernels and precision is not read."""
    stack = stated_stack(reader.row)
    if note := named(stack).note:
        reader.assumed.append(note)
    return stack


def _model(reader: _Reader) -> Model:
    row = reader.row
    name = row.word("model")
    shape = {
        c: row.whole(c) for c in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "moe_experts", "moe_topk")
    }
    if (shape["layers"] or 0) > MOST_LAYERS:
        raise UnsupportedRow(f"layers is {shape['layers']:,}; at most {MOST_LAYERS:,} are read")
    known = catalog_model(name)
    if known is not None and shape["hidden"] in (None, known.hidden):
        if shape["hidden"] is None:
            reader.assumed.append(f"shape of the catalog's {known.name} ({known.source})")
        stated = shape["vocab"]
        if stated and (stated > known.vocab or stated < (1 - PADDING) * known.vocab):
            known = msgspec.structs.replace(known, vocab=stated)
        return known if shape["layers"] in (None, known.layers) else cut(known, int(shape["layers"] or 1), name)
    experts, top_k = shape["moe_experts"], shape["moe_topk"]
    if experts and not (top_k and shape["ffn"]):
        raise UnsupportedRow(
            f"expert model {name!r} is not in the catalog, and moe_topk or ffn, the width of an expert, is not stated"
        )
    hidden = shape["hidden"]
    if not hidden or not shape["heads"]:
        raise UnsupportedRow(f"the shape of {name!r} is not stated, and the catalog has no such model")
    ffn, vocab = shape["ffn"] or 4 * hidden, shape["vocab"] or 50_257
    layers = shape["layers"]
    glu = row.word("glu") == "1"
    if not layers:
        params = row.number("params_b")
        if not params:
            raise UnsupportedRow(f"neither layers nor params_b of {name!r} is stated")
        wide = (3 if glu else 2) * hidden * ffn * (experts or 1)
        layers = max(round((params * 1e9 - vocab * hidden) / (4 * hidden**2 + wide)), 1)
        if layers > MOST_LAYERS:
            raise UnsupportedRow(f"params_b is {params:,}: {layers:,} layers of this width; at most {MOST_LAYERS:,}")
        reader.assumed.append(f"layers={layers} (from params_b)")
    if experts:
        reader.assumed.append(f"every layer has {experts} experts of width {ffn}, none of them shared")
    return model_from_shape(
        name, layers, hidden, shape["heads"], shape["kv_heads"] or shape["heads"], ffn, glu, vocab, tied=not glu,
        experts=experts or None, top_k=top_k,
    )  # fmt: skip


@lru_cache(maxsize=512)
def _cluster_cached(gpu_name: str, gpus: int, node: int, gbps: float, cards: int, layer: str) -> Cluster:
    cluster = cluster_from(gpu_of(gpu_name), gpus, node, gbps * 1e9 / 8)
    if layer:
        cluster = msgspec.structs.replace(cluster, link_layer=layer)
    levels = tuple(
        msgspec.structs.replace(level, cards=cards) if i else level for i, level in enumerate(cluster.levels)
    )
    return msgspec.structs.replace(cluster, levels=levels) if cards else cluster


def _cluster(reader: _Reader) -> Cluster:
    row = reader.row
    gpus = row.whole("gpus")
    if not gpus:
        raise UnsupportedRow("gpus is not stated")
    try:
        gpu = _gpu(row.word("gpu"))
    except ValueError as error:
        raise UnsupportedRow(str(error)) from None
    gbps = row.number("internode_gbps_per_gpu")
    node = reader.degree("gpus_per_node", 4 if gpu.name == "gh200" else 8)
    cards, layer = cards_of_a_node(row), link_layer_of(row)
    try:
        if gbps:
            return _cluster_cached(gpu.name, gpus, node, gbps, cards, layer)
        usual = usual_network(gpu)
        slow, cluster, fast = (_cluster_cached(gpu.name, gpus, node, each, cards, layer) for each in usual)
    except ValueError as error:  # one row of a chip without a known fabric must not stop a table
        raise UnsupportedRow(str(error)) from None
    if gpus > node:
        reader.unstated = UnstatedNetwork(usual, slow, cluster, fast)
        reader.assumed.append(f"network {usual.middle:g} Gbps per GPU, the median of clusters of its kind")
    return cluster


def _gpu(name: str) -> Gpu:
    """By the catalog's names, else as a driver prints it: tables write `RTX 3090`, `H100 NVL` or `V100-32GB-SXM2`."""
    try:
        return gpu_of(name)
    except ValueError:
        found = catalog_gpu(re.sub(r"[-_\s]+", " ", name))
        if found is None:
            raise
        return gpu_of(found)


def _layout(reader: _Reader, gpus: int) -> dict[str, int]:
    degrees = {axis: reader.degree(axis, 1) for axis in COPY}
    rest = max(gpus // (degrees["tp"] * degrees["pp"] * degrees["cp"]), 1)
    degrees["dp"] = reader.row.whole("dp") or rest
    return degrees


def _plain_attention(reader: _Reader, stack: Stack) -> bool:
    """Whether attention writes its scores."""
    return (reader.row.word("flash_attention") or str(int(not stack.kernels.unfused_attention))) == "0"


def _candidates(
    reader: _Reader, model: Model, job: Job, stack: Stack, layout: dict[str, int], plain: bool
) -> Iterable[Policy]:
    row = reader.row
    each = max(job.global_batch // job.pipeline_passes // layout["dp"], 1)
    experts = any(kind.experts for kind in model.kinds)
    micros = _single(reader, experts) or _micro_batches(reader, each, stack, layout["pp"])
    # embedding and head may take the place of layers (Llama 3: 126 in 16 stages of 8)
    per_stage = -(-model.layers // layout["pp"])
    vpps = chunks_of_a_stage(row, stack, per_stage)
    recompute = _recompute(reader)
    recomputes = [recompute] if recompute in RECOMPUTE else list(stack.abilities.recompute)
    tp = layout["tp"]
    ep = (row.whole("ep") or _unstated_ep(reader, model, stack, layout["dp"])) if experts else 1
    # no table has a column for tensor parallelism inside an expert; programs use none or that of the dense part
    etps = [1, tp] if ep > 1 and tp > 1 else [0]
    away = offloads(row, model.layers)
    for name, options in (
        ("micro_batch", micros), ("vpp", vpps), ("recompute", recomputes), ("etp", etps), ("offload", away)
    ):  # fmt: skip
        if len(options) > 1:
            reader.assumed.append(f"{name} not published: best of {', '.join(map(str, options))}")
    zero, group = _zero(reader, layout)
    # of a program that nobody knows, the row is all there is to go by
    most = stack.abilities.zero_with_stages if named(stack).known else max(stack.abilities.zero)
    if layout["pp"] > 1 and zero > most:
        reader.assumed.append(f"zero={most} (with stages {stack.name} has no more)")
        zero, group = most, 0
    sp, modules, layers = row.word("sp"), named_modules(row), recomputed_layers(row, per_stage)
    common = Policy(
        dp=layout["dp"],
        tp=tp,
        pp=layout["pp"],
        cp=layout["cp"],
        ep=ep,
        sp=sp == "1" if sp else tp > 1,
        zero=zero,
        shard_group=group,
        loss=named_loss(row),
        attention="plain" if plain else "flash",
        overlap_grad=stack.overlap.overlap_grad and (zero == 0 or stack.overlap.overlap_sharded_grad),
        overlap_param=stack.overlap.overlap_param,
        overlap_tp=stack.overlap.overlap_tp,
        overlap_pp=stack.overlap.overlap_pp,
    )
    for micro_batch, vpp, again, etp, gone in product(micros, vpps, recomputes, etps, away):
        yield msgspec.structs.replace(
            common,
            vpp=vpp,
            etp=etp,
            micro_batch=micro_batch,
            recompute=again,
            recompute_layers=layers if again != "none" else -1,
            recompute_modules=modules if again == "selective" else (),
            offload=gone.what,
            offload_share=gone.share,
            schedule=usual_schedule(vpp),
        )


def _single(reader: _Reader, experts: bool) -> list[int]:
    """A micro-batch of one sequence, where the row states none and such runs have no other."""
    if reader.row.whole("micro_batch") or not experts or _gpu(reader.row.word("gpu")).memory_bytes > LITTLE_MEMORY:
        return []
    reader.assumed.append("micro_batch=1 (not published; so are most runs of expert models on such a GPU)")
    return [1]


def _micro_batches(reader: _Reader, per_rank: int, stack: Stack, pp: int) -> list[int]:
    """Sizes to choose from: the published one, else what the program takes by itself, else any that divides."""
    stated = reader.row.whole("micro_batch")
    if stated:
        return [stated]
    number = stack.abilities.micro_batches_per_stage * pp
    if pp > 1 and number and per_rank % number == 0:
        reader.assumed.append(f"micro_batch={per_rank // number} (not published; {stack.name} makes {number} of them)")
        return [per_rank // number]
    return [m for m in (1, 2, 4, 8, 16) if per_rank % m == 0] or [1]


def _unstated_ep(reader: _Reader, model: Model, stack: Stack, dp: int) -> int:
    """What the program's recipes use, as far as ranks and experts divide."""
    count = next(kind.experts.count for kind in model.kinds if kind.experts)
    ep = max(n for n in range(1, stack.abilities.unstated_ep + 1) if dp % n == 0 and count % n == 0)
    if ep > 1:
        reader.assumed.append(f"ep={ep} (not published)")
    return ep


def _recompute(reader: _Reader) -> str:
    stated = reader.row.word("recompute")
    if stated in ("", "none") or reader.row.word("source") not in WITHOUT_RECOMPUTE:
        return stated
    reader.assumed.append(READ_OTHERWISE)
    return "none"


def _zero(reader: _Reader, layout: dict[str, int]) -> tuple[int, int]:
    """ZeRO stage and shard group of a cell such as '1', 'fsdp-full(3)', 'fsdp' (which shards all), 'hsdp'."""
    cell = reader.row.word("zero_stage_or_fsdp").lower()
    if "hsdp" in cell:
        # a lone digit is the stage of ZeRO
        groups = [int(number) for number in re.findall(r"\d+", cell) if int(number) > 3]
        return 3, min(layout["dp"], groups[-1] if groups else 8)
    digits = re.findall(r"[0-3]", cell.replace("fsdp2", "fsdp"))
    if digits:
        zero = int(digits[-1])
        return zero, sharing_ranks(reader.row, layout["dp"]) if zero == 1 else 0
    if "fsdp" in cell:
        return 3, 0
    reader.assumed.append("zero=0")
    return 0, 0
