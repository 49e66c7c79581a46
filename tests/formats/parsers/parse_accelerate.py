"""accelerate's own reader and sizes; prints what they make of a file. `python parse_accelerate.py FILE`"""

import importlib.metadata
import json
import os
import sys

stated = importlib.metadata.version
importlib.metadata.version = lambda name: "5.22.2" if name == "transformers" else stated(name)  # asked for, not used
from accelerate.commands.config.config_args import load_config_from_file  # noqa: E402

found = load_config_from_file(sys.argv[1])
told = {"num_processes": found.num_processes, "mixed_precision": str(found.mixed_precision), **found.fsdp_config,
        **found.parallelism_config, "distributed_type": str(found.distributed_type)}  # fmt: skip
prefix = "parallelism_config_"
for name, value in found.parallelism_config.items():
    os.environ["PARALLELISM_CONFIG_" + name.removeprefix(prefix).upper()] = str(value)
from accelerate.parallelism_config import ParallelismConfig  # noqa: E402

sizes = ParallelismConfig()
told |= {
    "dp_replicate": sizes.dp_replicate_size,
    "dp_shard": sizes.dp_shard_size,
    "tp": sizes.tp_size,
    "cp": sizes.cp_size,
}
print(json.dumps(told, default=str))
