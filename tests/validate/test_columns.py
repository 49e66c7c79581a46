"""A table of runs states a run in the words of the options: a column is a parameter, or another word for one."""

import re
from pathlib import Path

import shardwise.measured.validate
from shardwise.spec.parameters import parameters

READ = re.compile(r'(?:word|whole|number|degree|text)\("([a-z_0-9]+)"|(?:_stated|_one_of)\(\w+, "([a-z_0-9]+)"')
OTHER_WORDS = {
    "micro_batch": "micro", "zero_stage": "zero", "zero_stage_or_fsdp": "zero", "software": "stack",
    "dtype": "precision",
    "flash_attention": "attention", "internode_gbps_per_gpu": "nic", "cards_per_node": "nic",
}  # fmt: skip
OF_MODEL_AND_MACHINE = {"model", "name", "params_b", "glu", "moe_experts", "moe_topk", "gpu", "gpus", "gpus_per_node"}
OF_ONE_GPU = {"accum", "compiled", "fused"}
MEASURED = {"step_ms", "peak_alloc_gib", "peak_mem_gb", "tokens_per_s_per_gpu"}
SOURCE = {"source", "source_ref", "notes"}


def columns() -> set[str]:
    files = Path(shardwise.measured.validate.__file__).parent.glob("*.py")
    return {
        name for file in files for found in READ.findall(file.read_text(encoding="utf-8")) for name in found if name
    }


def test_every_column_is_a_parameter_or_another_word_for_one():
    found = columns()
    assert {"seq", "global_batch", "grad_dtype", "recompute_modules", "dispatcher"} <= found
    assert found - set(parameters()) - set(OTHER_WORDS) - OF_MODEL_AND_MACHINE - OF_ONE_GPU - MEASURED == SOURCE
    assert set(OTHER_WORDS.values()) <= set(parameters())
