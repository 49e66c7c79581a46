"""Megatron-LM's own argument parser and checks on arguments; prints what they make of them as JSON.

`python parse_megatron.py SOURCE GPUS ARGUMENT ...`
"""

import json
import os
import sys

import torch
from _stubs import stand_in

source, gpus, *words = sys.argv[1:]
torch.compile = lambda function=None, **_named: function or (lambda inner: inner)  # nothing is computed
stand_in("triton", "triton.language")
sys.path.insert(0, source)
os.environ |= {"WORLD_SIZE": gpus, "RANK": "0"}
from megatron.training import arguments  # noqa: E402

assert arguments.__file__.startswith(source)


class Card:
    major, minor, total_memory, multi_processor_count = 9, 0, 80 * 2**30, 132


torch.cuda.get_device_properties = lambda *_: Card()
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.device_count = lambda: 8
arguments.is_te_min_version = lambda *_given, **_named: True
sys.argv = ["pretrain_gpt.py", *words]
parsed = arguments.parse_args()
checked = arguments.validate_args(parsed, {}) or parsed
print(json.dumps({k: v for k, v in vars(checked).items() if isinstance(v, int | float | str | bool | list | None)},
                 default=str))  # fmt: skip
