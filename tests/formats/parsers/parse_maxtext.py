"""MaxText's own configuration class. `python parse_maxtext.py SOURCE FILE GPUS NODES`"""

import json
import sys
from importlib import import_module

from _stubs import stand_in

source, file, gpus, nodes = sys.argv[1:]
sys.path.insert(0, f"{source}/src")
stand_in("jax", "jax.numpy", "jax.experimental", "jax.experimental.compilation_cache", "flax")
sys.modules["jax"].devices = lambda *_: [None] * int(gpus)
sys.modules["jax"].local_device_count = lambda: int(gpus) // int(nodes)
import_module("maxtext.utils")
import_module("maxtext.configs")
# what reaches for storage, slices and devices; the class that reads the file needs one answer of theirs
stand_in(
    "maxtext.utils.gcs_utils", "maxtext.utils.max_utils", "maxtext.utils.elastic_utils", "maxtext.utils.max_logging",
    "maxtext.inference", "maxtext.inference.inference_utils", "maxtext.configs.pyconfig_deprecated",
)  # fmt: skip
sys.modules["maxtext.utils.max_utils"].get_num_slices = lambda _keys: int(nodes)
pyconfig = import_module("maxtext.configs.pyconfig")

found = pyconfig._initialize_pydantic(["train", file])  # the public one ends the process without a word
axes = ("data", "fsdp", "tensor", "tensor_sequence", "context")
print(
    json.dumps(
        {
            **{f"{at}_{axis}": getattr(found, f"{at}_{axis}_parallelism") for at in ("ici", "dcn") for axis in axes},
            "seq": found.max_target_length, "remat": found.remat_policy, "layers": found.num_decoder_layers,
            "global_batch": found.global_batch_size_to_train_on, "rules": len(found.logical_axis_rules),
            "optimizer_over_data": found.shard_optimizer_over_data,
        }
    )
)  # fmt: skip
