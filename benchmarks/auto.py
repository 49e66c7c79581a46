"""Models whose split nobody wrote, split and held against one process: which cells hold, which are refused and why.

programs: how many were tried. cells_legal: program x plan that is not refused beforehand; cells_equal: of these, losses
and the gradient of every parameter equal one process over all steps and a checkpoint loads into the plain model.
messages_equal: of those, every message of a step was foretold. memory_gap_max: the most that a rank holds at once in a
step, activations and gradients with it, foretold by that rank alone in a pretended world against the rank as it ran.
gradients: how many were compared. attention_and_feed_forward: share of the families with attention in which tensor
parallelism cuts both. families_gap_params: parameters of the planner's Model traced from a module against those of its
hand-written family. `--more` takes further families, `--fresh` those that nothing was developed with. The matrix of 15
programs at 20 steps takes about half an hour of one core; `--steps 3` a third of that.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch starts its threads

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from _auto_families import families_gap
from _auto_fresh import FRESH, MORE
from _auto_programs import PROGRAMS, Program
from shardwise.auto.plan import AutoPlan, degrees_of
from shardwise.auto.program import program_of
from shardwise.auto.proof import Proof
from shardwise.auto.prove import plan_of, proven, refused, truth_of

CELLS = ("fsdp=2", "tp=2", "tp=2,sp", "fsdp=2,tp=2", "pp=2", "fsdp=2,pp=2", "tp=2,pp=2", "cp=2")
STEPS = 20
BOTH = "attention and feed-forward"


def tried(program: Program, cells: tuple[str, ...], steps: int, dtype: str) -> dict[str, Any]:
    """Every cell of one program: what it gave, or why it is refused."""
    try:
        own = program_of(program.build, program.batch, program.step, steps, dtype)
        truth = truth_of(own)
    except Exception as error:
        why = f"the program itself does not run: {str(error).splitlines()[0]}"
        return {"name": program.name, "kind": program.kind, "cut": "", "cells": {c: {"refused": why} for c in cells}}
    found: dict[str, Any] = {"name": program.name, "kind": program.kind, "cells": {}}
    plans: dict[tuple[int, bool], AutoPlan] = {}
    for cell in cells:
        degrees = degrees_of(cell)
        if (degrees.tp, degrees.sp) not in plans:
            plans[degrees.tp, degrees.sp] = plan_of(own, degrees)
        plan = replace(plans[degrees.tp, degrees.sp], degrees=degrees)
        why = refused(plan)
        found["cells"][cell] = {"refused": why} if why else _facts(proven(own, plan, truth))
        print(f"{program.name} {cell}: {found['cells'][cell]}", file=sys.stderr, flush=True)
    cut = plans.get((2, False))
    if cut is not None:
        found["cut"] = _cut(cut)
        found["not_cut"] = [f"{r.where}: {r.why}" for r in cut.all_refusals]
        kinds = cut.kinds
        found["split_share"] = sum(k.split_parameters * len(k.blocks) for k in kinds) / sum(
            k.parameters * len(k.blocks) for k in kinds
        )
    return found


def _facts(proof: Proof) -> dict[str, Any]:
    names = (
        "loss_gap",
        "gradient_gap",
        "compared",
        "trainable",
        "messages",
        "messages_equal",
        "gradients",
        "gradient_gaps",
        "memory_gap",
        "state_gap",
        "peak_bytes",
        "share",
        "why",
    )
    return {"equal": proof.equal, **{name: getattr(proof, name) for name in names}}


def _cut(plan: AutoPlan) -> str:
    """What is cut in every block."""
    attention = all(any(cut.attends for cut in kind.cuts) for kind in plan.kinds)
    rest = all(any(not cut.attends for cut in kind.cuts) for kind in plan.kinds)
    return (
        "attention and feed-forward"
        if attention and rest
        else "attention"
        if attention
        else "feed-forward"
        if rest
        else ""
    )


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    cells = [cell for row in rows for cell in row["cells"].values()]
    legal = [cell for cell in cells if "refused" not in cell]
    equal = [cell for cell in legal if cell["equal"]]
    attends = [row for row in rows if row["kind"] != "mixer"]
    return {
        "programs": len(rows), "cells": len(cells), "cells_legal": len(legal), "cells_equal": len(equal),
        "messages_equal": sum(bool(cell["messages_equal"]) for cell in equal),
        "gradients": sum(cell["gradients"] for cell in equal),
        "memory_foretold": sum(cell["memory_gap"] is not None for cell in equal),
        "memory_gap_max": max((cell["memory_gap"] for cell in equal if cell["memory_gap"] is not None), default=None),
        "gradient_gap_max": max((cell["gradient_gap"] for cell in equal), default=None),
        "attention_and_feed_forward": sum(r["cut"] == BOTH for r in attends) / max(len(attends), 1),
    }  # fmt: skip


def matrix(rows: list[dict[str, Any]]) -> str:
    """The tables of docs/auto.md."""
    cells = list(rows[0]["cells"])
    lines = ["| program | cut by tp 2 | " + " | ".join(c.replace(",", " x ").replace("=", " ") for c in cells) + " |",
             "| --- | --- | " + " | ".join("---" for _ in cells) + " |"]  # fmt: skip
    notes: list[str] = []
    for row in rows:
        shown = []
        for cell in row["cells"].values():
            why = cell.get("refused") or cell.get("why")
            if why and why not in notes:
                notes.append(why)
            mark = (
                f"refused ({notes.index(why) + 1})"
                if "refused" in cell
                else f"{cell['gradient_gap']:.0e}"
                if cell["equal"]
                else f"**no** ({notes.index(why) + 1})"
            )
            shown.append(mark)
        share = f", {row['split_share']:.0%}" if row.get("split_share") is not None else ""
        lines.append(f"| {row['name']} | {(row['cut'] or 'nothing') + share} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", *(f"({place}) {why}" + "  " for place, why in enumerate(notes, start=1))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="families nothing was developed with")
    parser.add_argument("--more", action="store_true", help="families tried after the first, mended since")
    parser.add_argument("--programs", default="", help="some of them, joined by commas")
    parser.add_argument("--cells", default="/".join(CELLS), help="plans, joined by /")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    parser.add_argument("--rows", type=Path, help="write every cell here")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    known = FRESH if asked.fresh else MORE if asked.more else PROGRAMS
    names = [n for n in asked.programs.split(",") if n] or list(known)
    rows = [tried(known[name], tuple(asked.cells.split("/")), asked.steps, asked.dtype) for name in names]
    if asked.rows:
        asked.rows.write_text(json.dumps(rows, indent=1))
    if not asked.json:
        print(matrix(rows))
    print(json.dumps({**figures(rows), "families_gap_params": families_gap()}))


if __name__ == "__main__":
    main()
