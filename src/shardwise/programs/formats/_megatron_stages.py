"""How Megatron's settings cut layers into stages and chunks."""

from shardwise.programs.formats._contract import Known
from shardwise.programs.formats._layout import is_even, layers_in
from shardwise.programs.formats._settings import FileSettings

FIRST = ("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage")
LAST = ("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage")
"""as an argument, and in the core's configuration"""
COUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
"""the embedding or the loss counts as a layer of its stage"""


def stages(settings: FileSettings, known: Known, pp: int) -> tuple[tuple[int, ...], int]:
    """Layers of each chunk, where they differ or a layout states them, and chunks per stage."""
    if settings.has("pipeline_model_parallel_layout"):
        layers = layers_in(settings.text("pipeline_model_parallel_layout"))
        if len(layers) % pp:
            raise settings.refuse("pipeline_model_parallel_layout", f"a layout of a multiple of {pp} stages")
        return layers, max(len(layers) // pp, 1)
    total = settings.whole("num_layers", known.layers or 0, least=0)
    vpp = _chunks(settings, total, pp)
    return _uneven(settings, total, pp, vpp), vpp


def _chunks(settings: FileSettings, total: int, pp: int) -> int:
    for name in ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"):
        if settings.has(name):
            return settings.whole(name)
    each_name = "num_layers_per_virtual_pipeline_stage"
    if not settings.has(each_name):
        return 1
    each = settings.whole(each_name)
    if not total or total % (pp * each):
        raise settings.refuse(each_name, "a divisor of the layers of a stage")
    return total // pp // each


def _uneven(settings: FileSettings, total: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Layers of each chunk where the first or the last stage has others than those between; empty: all alike."""
    ends = [next((settings.whole(name) for name in names if settings.has(name)), None) for names in (FIRST, LAST)]
    counted = [settings.flag(name) for name in COUNTED]
    if not total or pp == 1 or not (any(ends) or any(counted)):
        return ()
    if any(ends):
        between = pp - sum(end is not None for end in ends)
        left = total - sum(end or 0 for end in ends)
        each = [left // max(between, 1)] * pp
        each[0], each[-1] = ends[0] or each[0], ends[1] or each[-1]
        chunks = [layers // vpp for _ in range(vpp) for layers in each]
    else:
        chunks = [(total + sum(counted)) // (pp * vpp)] * (pp * vpp)
        chunks[0] -= counted[0]
        chunks[-1] -= counted[1]
    if sum(chunks) != total:
        named = next(name for name in (*FIRST, *LAST, *COUNTED) if settings.has(name))
        raise settings.refuse(named, f"a split of {total} layers over {pp} stages of {vpp} chunks")
    return () if is_even(tuple(chunks)) else tuple(chunks)
