"""Primus' own loading of an experiment: presets, model, overrides. `python parse_primus.py SOURCE FILE`"""

import json
import sys
from pathlib import Path

source, file = sys.argv[1:]
sys.path.insert(0, source)
from primus.core.config.primus_config import get_module_config, load_primus_config  # noqa: E402

module = get_module_config(load_primus_config(Path(file)), "pre_trainer")
print(json.dumps({"framework": module.framework, **vars(module.params)}, default=str))
