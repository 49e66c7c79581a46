"""NeMo Automodel's own reading of the section `distributed`. `python parse_automodel.py SOURCE FILE`"""

import json
import sys
import types

import yaml

source, file = sys.argv[1:]
sys.path.insert(0, source)
# The package of recipes imports trainers, models and data; the one module that reads the section needs none of them.
recipes = types.ModuleType("nemo_automodel.recipes")
recipes.__path__ = [f"{source}/nemo_automodel/recipes"]
sys.modules["nemo_automodel.recipes"] = recipes
from nemo_automodel.recipes._dist_utils import parse_distributed_section  # noqa: E402

with open(file) as stream:
    read = yaml.safe_load(stream)
found = parse_distributed_section(read["distributed"])
strategy, pipeline = found["strategy_config"], found["pipeline_config"]
print(
    json.dumps(
        {
            **{f"{axis}_size": found[f"{axis}_size"] for axis in ("dp", "dp_replicate", "tp", "cp", "pp", "ep")},
            "strategy": type(strategy).__name__, "recompute": found["activation_checkpointing"],
            "sequence_parallel": getattr(strategy, "sequence_parallel", None),
            "reshard": getattr(strategy, "reshard_after_forward", None),
            "overlap_tp": getattr(strategy, "enable_async_tensor_parallel", None),
            "schedule": pipeline and pipeline.pp_schedule, "micro": pipeline and pipeline.pp_microbatch_size,
            "layers_per_stage": pipeline and pipeline.layers_per_stage,
        }
    )
)  # fmt: skip
