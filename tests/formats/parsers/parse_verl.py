"""hydra with verl's own configuration folder; prints what it composes. `python parse_verl.py SOURCE OVERRIDE ...`"""

import json
import os
import sys

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

source, *words = sys.argv[1:]
with initialize_config_dir(os.path.join(os.path.abspath(source), "verl", "trainer", "config"), version_base=None):
    found = compose("sft_trainer_engine", overrides=words)
print(
    json.dumps(
        {name: OmegaConf.to_container(found[name], resolve=False) for name in ("engine", "data", "trainer", "optim")}
    )
)
