"""nanotron's own configuration classes; prints what they make of a file. `python parse_nanotron.py SOURCE FILE`"""

import json
import os
import sys

from _stubs import stand_in

source, file = sys.argv[1:]
sys.path.insert(0, os.path.join(source, "src"))
import torch._inductor  # noqa: E402, F401  before its place is taken

stand_in(
    "triton", "triton.language", "flash_attn", "flash_attn.flash_attn_interface", "flash_attn.layers",
    "flash_attn.layers.rotary", "flash_attn.bert_padding", "flash_attn.ops", "flash_attn.ops.triton",
    "flash_attn.ops.triton.layer_norm", "grouped_gemm", "grouped_gemm.ops", "ring_flash_attn",
)  # fmt: skip
from nanotron.config import get_config_from_file  # noqa: E402

found = get_config_from_file(file, skip_unused_config_keys=False, skip_null_keys=False)
parallel, tokens = found.parallelism, found.tokens
print(
    json.dumps(
        {
            "dp": parallel.dp, "pp": parallel.pp, "tp": parallel.tp, "cp": parallel.context_parallel_size,
            "engine": type(parallel.pp_engine).__name__, "tp_mode": parallel.tp_mode.name,
            "overlap_tp": parallel.tp_linear_async_communication, "recompute": parallel.recompute_layer,
            "zero": found.optimizer.zero_stage, "fp32": found.optimizer.accumulate_grad_in_fp32,
            "seq": tokens.sequence_length, "micro": tokens.micro_batch_size,
            "accumulation": tokens.batch_accumulation_per_replica, "dtype": str(found.model.dtype),
            "layers": found.model.model_config.num_hidden_layers,
        }
    )
)  # fmt: skip
