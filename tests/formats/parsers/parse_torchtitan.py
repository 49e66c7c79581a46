"""torchtitan's own configuration manager; prints what it makes of arguments. `python parse_torchtitan.py SOURCE ...`

The package's first file imports what needs a GPU, so an empty package of its name stands before its modules.
"""

import dataclasses
import json
import os
import sys
import types

import torch._inductor.runtime.triton_compat  # noqa: F401  before anything stands in for triton
from _stubs import stand_in

source, *words = sys.argv[1:]
stand_in("triton", "triton.language")
# data and logs, which parsing imports and does not use
stand_in("tensorboard", "torch.utils.tensorboard", "datasets", "datasets.distributed", "huggingface_hub", "tokenizers")
package = types.ModuleType("torchtitan")
package.__path__ = [os.path.join(source, "torchtitan")]
sys.modules["torchtitan"] = package
from torchtitan.config import ConfigManager  # noqa: E402

found = ConfigManager().parse_args(words)
kept = {name: getattr(found, name) for name in ("parallelism", "training", "activation_checkpoint", "compile")}
print(json.dumps({name: dataclasses.asdict(value) | {"class": type(value).__qualname__} if value is not None else None
                  for name, value in kept.items()}, default=str))  # fmt: skip
