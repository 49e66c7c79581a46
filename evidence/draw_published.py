"""Draws training programs as users run them: a published model, a way to train it, a batch.

    python evidence/draw_published.py --set eleventh --seed 11 --out evidence/accuracy/h200_programs_eleventh_drawn.json

The lists that `draw_programs.py` draws from are nearly used up, and rare classes are not what people train. Here the
places are fixed (how often each way to train is taken), and a seed draws the model and the batch of each from the
published configurations of `_published_ninth.py` and files named after it. No model comes twice in one place's kind
before all have come. Where a compiler would take too long, layers are cut. `_trace_programs_ninth.py` and
files named after it make programs of the tables.
"""

import argparse
import json
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import _published_eleventh
import _published_ninth
import _published_tenth

SETS: dict[str, ModuleType] = {"ninth": _published_ninth, "tenth": _published_tenth, "eleventh": _published_eleventh}
COMPILED_LAYERS = 8
"""so that a compiler is done in a minute"""
LAYERS = ("num_hidden_layers", "n_layer")
POSITIONS = {"OPTForCausalLM": 2048, "GPTNeoXForCausalLM": 2048, "GPTNeoForCausalLM": 2048}
"""kinds whose tables of positions end before the longest batch"""


def drawn(kind_of_set: str, seed: int) -> dict[str, Any]:
    pools = SETS[kind_of_set]
    found: list[dict[str, Any]] = []
    left: dict[str, list[str]] = {}
    for place, (pool, ways) in enumerate(pools.PLACES):
        dice = random.Random(f"{seed} {pool} {place}")
        for way in ways:
            if not left.get(pool):
                left[pool] = dice.sample(sorted(pools.POOL[pool]), len(pools.POOL[pool]))
            model = left[pool].pop()
            kind, settings = pools.POOL[pool][model]
            rows, seq = dice.choice(pools.BATCHES[pool])
            while seq > pools.LONGEST.get(model, settings.get("n_positions", POSITIONS.get(kind, seq))):
                rows, seq = rows * 2, seq // 2
            if way == "compiled":
                settings = {k: min(v, COMPILED_LAYERS) if k in LAYERS else v for k, v in settings.items()}
            found.append({"name": f"{model}-{way}", "family": pool, "kind": kind, "settings": settings, "way": way,
                          "rows": rows, "seq": seq})  # fmt: skip
            print(f"{pool:16} {model:26} {way:18} {rows:3} x {seq}", file=sys.stderr)
    return {"seed": seed, "programs": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", dest="kind_of_set", choices=SETS, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    asked = parser.parse_args()
    asked.out.write_text(json.dumps(drawn(asked.kind_of_set, asked.seed), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
