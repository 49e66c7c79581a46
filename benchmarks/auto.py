"""Models whose split nobody wrote, split and held against one process: which cells hold, which are refused and why.

programs: how many were tried. cells_legal: program x plan that is not refused beforehand; cells_equal: of these, losses
and the gradient of every parameter equal one process over all steps and a checkpoint loads into the plain model.
cells_refused: how many by reason. messages_equal: equal cells in which every message of a step was foretold.
memory_gap_max: the most that a rank holds at once in a step, foretold by that rank alone in a pretended world against
the rank as it ran. explain_runs: equal cells of EXPLAINED whose printed code trains as one process by itself. The line
before says more. Programs: 15 families first developed with, ten harder ones (`_auto_hard.py`) and eight scripts
(`auto_scripts`); `--more` takes further families, `--fresh` and `--unseen` those nothing was developed with. It takes
hours: `--programs llama,clip` takes some, with `--done FILE` finished cells are kept, `--minutes 9` stops behind
the cell that is running then, and the same command goes on; cells_left says how many there are still. Cells of other
sources are run again, or with `--older` kept and counted (cells_older).
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch starts its threads

import argparse
import dataclasses
import json
import warnings
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from _auto_cells import FinishedCells
from _auto_explain import trains_by_itself
from _auto_families import families_gap
from _auto_fresh import FRESH, MORE, UNSEEN
from _auto_hard import HARD
from _auto_programs import PROGRAMS, Program
from shardwise.run.auto.plan import AutoPlan, Degrees, degrees_of
from shardwise.run.auto.program import UserProgram, program_of
from shardwise.run.auto.proof import Proof
from shardwise.run.auto.prove import plan_of, proven, refused
from shardwise.run.auto.script import opened, program_in
from shardwise.run.auto.truth import Truth, truth_of

CELLS = (
    "fsdp=2", "dp=2,fsdp=2", "fsdp=2,offload=both", "tp=2", "tp=2,sp", "fsdp=2,tp=2", "pp=2", "pp=2,vpp=2",
    "pp=2,schedule=zero_bubble_h1", "fsdp=2,pp=2", "tp=2,pp=2", "cp=2", "fsdp=2,ep=2",
)  # fmt: skip
STEPS = 20
EXPLAINED = ("tp=2", "pp=2", "fsdp=2,ep=2", "fsdp=2,tp=2", "cp=2")
SCRIPTS = Path(__file__).parent / "auto_scripts"
HAND_WRITTEN = (
    "accumulated",
    "accelerated",
    "trainer",
    "lightning",
    "adversaries",
    "diffusion_steps",
    "padded",
    "closure",
)
BOTH = "attention and feed-forward"
TENSOR = "tp=2"
"""the cell whose plan says what is cut"""


def tried(program: Program, cells: tuple[str, ...], done: FinishedCells, place: int, of: int) -> dict[str, Any]:
    """Every cell of one program: what it gave, or why it is refused; those of an earlier run are not run again."""
    wanted = [cell for cell in cells if applies(program, cell)]
    if any(done.get(program.name, cell) is None for cell in (*wanted, "cut")) and not done.late:
        with ExitStack() as stack:
            try:
                own = _made(program, done, stack)
                truth = truth_of(own)
            except Exception as error:
                why = f"the program itself does not run: {str(error).splitlines()[0]}"
                for cell in wanted:
                    done.add(program.name, cell, {"refused": why})
                done.add(program.name, "cut", {"cut": ""})
            else:
                _run_missing(program, wanted, own, truth, done, place, of)
    found = {cell: done.get(program.name, cell) for cell in wanted}
    return {"name": program.name, "kind": program.kind, **(done.get(program.name, "cut") or {"cut": ""}),
            "cells": {cell: facts for cell, facts in found.items() if facts is not None},
            "left": sum(facts is None for facts in found.values()),
            "older": sum(done.is_older(program.name, cell) for cell in wanted)}  # fmt: skip


def _made(program: Program, done: FinishedCells, stack: ExitStack) -> UserProgram:
    if program.name not in HAND_WRITTEN:
        return program_of(program.build, program.batch, program.step, done.steps, done.dtype)
    script, names = stack.enter_context(opened(SCRIPTS / f"{program.name}.py"))
    return program_in(script, names, done.steps, done.dtype)


def applies(program: Program, cell: str) -> bool:
    return program.kind == "experts" or "ep=" not in cell


def _run_missing(
    program: Program, cells: list[str], own: UserProgram, truth: Truth, done: FinishedCells, place: int, of: int
) -> None:
    plans: dict[tuple[int, ...], AutoPlan] = {}

    def planned(degrees: Degrees) -> AutoPlan:
        key = (degrees.tp, degrees.sp, degrees.ep, degrees.cp)
        if key not in plans:
            plans[key] = plan_of(own, degrees)
        return replace(plans[key], degrees=degrees)

    if done.get(program.name, "cut") is None:
        done.add(program.name, "cut", _told(planned(degrees_of(TENSOR))))
    for number, cell in enumerate(cells, start=1):
        if done.get(program.name, cell) is not None or done.late:
            continue
        plan = planned(degrees_of(cell))
        why = own.cannot(plan.degrees) or refused(plan)
        facts = {"refused": why} if why else _facts(proven(own, plan, truth))
        if (
            facts.get("equal")
            and cell in EXPLAINED
            and own.loop is None
            and len(own.optimizers) == 1 == len(own.parts) - 1
        ):
            facts["explained"] = trains_by_itself(own, plan, truth)
        done.add(program.name, cell, facts)
        told = why or f"equal {facts['equal']}, {facts['gradient_gap']:.0e}, memory {facts['memory_gap']}"
        done.tell(f"{program.name} {cell}: {told}", place + number, of)


def _told(plan: AutoPlan) -> dict[str, Any]:
    kinds = plan.kinds
    whole = sum(k.parameters * len(k.blocks) for k in kinds)
    return {"cut": _cut(plan), "not_cut": [f"{r.where}: {r.why}" for r in plan.all_refusals],
            "split_share": sum(k.split_parameters * len(k.blocks) for k in kinds) / max(whole, 1)}  # fmt: skip


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
    reasons = Counter(cell["refused"] for cell in cells if "refused" in cell)
    return {
        "programs": len(rows), "cells_legal": len(legal), "cells_equal": len(equal), "cells_refused": dict(reasons),
        "messages_equal": sum(bool(cell["messages_equal"]) for cell in equal),
        "memory_gap_max": max((cell["memory_gap"] for cell in equal if cell["memory_gap"] is not None), default=None),
        "explain_runs": sum(bool(cell.get("explained")) for cell in equal),
    }  # fmt: skip


def further(rows: list[dict[str, Any]]) -> dict[str, Any]:
    cells = [cell for row in rows for cell in row["cells"].values()]
    equal = [cell for cell in cells if cell.get("equal")]
    attends = [row for row in rows if row["kind"] != "mixer"]
    return {
        "cells": len(cells), "cells_left": sum(row["left"] for row in rows),
        "cells_older": sum(row["older"] for row in rows), "gradients": sum(cell["gradients"] for cell in equal),
        "memory_foretold": sum(cell["memory_gap"] is not None for cell in equal),
        "gradient_gap_max": max((cell["gradient_gap"] for cell in equal), default=None),
        "attention_and_feed_forward": sum(r["cut"] == BOTH for r in attends) / max(len(attends), 1),
        "explain_tried": sum("explained" in cell for cell in equal),
    }  # fmt: skip


def _titled(cell: str) -> str:
    return degrees_of(cell).text


def matrix(rows: list[dict[str, Any]]) -> str:
    """The tables of evidence/auto-models.md."""
    cells = list(dict.fromkeys(cell for row in rows for cell in row["cells"]))
    lines = ["| program | cut by tp 2 | " + " | ".join(map(_titled, cells)) + " |",
             "| --- | --- | " + " | ".join("---" for _ in cells) + " |"]  # fmt: skip
    notes: list[str] = []
    for row in rows:
        shown = []
        for cell in (row["cells"].get(name) for name in cells):
            if cell is None:
                shown.append("-")
                continue
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
    parser.add_argument("--unseen", action="store_true", help="eight more of these, with scans and two stacks")
    parser.add_argument("--more", action="store_true", help="families tried after the first, mended since")
    parser.add_argument("--programs", default="", help="some of them, joined by commas")
    parser.add_argument("--cells", default="/".join(CELLS), help="plans, joined by /")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    parser.add_argument("--optimizer", default="adamw", choices=("adamw", "sgd"))
    parser.add_argument("--rows", type=Path, help="write every cell here")
    parser.add_argument("--done", type=Path, help="keep finished cells here, and go on from there")
    parser.add_argument("--minutes", type=float, help="stop behind the cell that runs after so many")
    parser.add_argument("--older", action="store_true", help="keep finished cells of earlier sources too; counted")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    hand = {name: Program(name, "script", torch.nn.Module, dict) for name in HAND_WRITTEN}
    known = UNSEEN if asked.unseen else FRESH if asked.fresh else MORE if asked.more else {**PROGRAMS, **HARD, **hand}
    names = [n for n in asked.programs.split(",") if n] or list(known)
    known = {name: dataclasses.replace(each, optimizer=asked.optimizer) for name, each in known.items()}
    cells = tuple(asked.cells.split("/"))
    done = FinishedCells(
        asked.done, asked.steps, asked.dtype, asked.minutes, older=asked.older, optimizer=asked.optimizer
    )
    counts = [sum(applies(known[name], cell) for cell in cells) for name in names]
    rows = [tried(known[name], cells, done, sum(counts[:place]), sum(counts)) for place, name in enumerate(names)]
    if asked.rows:
        asked.rows.write_text(json.dumps(rows, indent=1))
    if not asked.json:
        print(matrix(rows))
    print(json.dumps({**further(rows), "families_gap_params": families_gap()}))
    print(json.dumps(figures(rows)))


if __name__ == "__main__":
    main()
