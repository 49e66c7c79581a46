"""What `shardwise lab` shows: the plan of a lab, a run, a demonstration."""

from collections.abc import Sequence
from typing import Any

from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise_lab.build import commands
from shardwise_lab.cables import plant_of
from shardwise_lab.emulated import Emulated
from shardwise_lab.facts import DemoResult, Measured
from shardwise_lab.page import (
    AXIS_HEADS,
    HEADS,
    HEADS_NOTE,
    axis_rows,
    case_rows,
    comparison_rows,
    counts_text,
    port_rows,
    rank_notes,
    scale_text,
)
from shardwise_lab.predict import card_rate

MOST_PORTS = 12


def plan_data(fabric: Emulated, lab: str) -> dict[str, Any]:
    plant = plant_of(fabric)
    names, capacity = fabric.tree.links.name_of, fabric.tree.links.capacity
    return {
        "fabric": fabric.cluster.name, "gpus": fabric.gpus, "dilation": fabric.dilation,
        "card_bytes_per_s": card_rate(fabric), "namespaces": list(commands(lab, fabric, plant)),
        "ports": [{"link": names(link), "bytes_per_s": float(capacity[link])}
                  for cable in plant.cables for link in (cable.out, cable.back)],
        "commands": [f"{line.split()[0]} -n {space} {line.split(' ', 1)[1]}"
                     for space, lines in commands(lab, fabric, plant).items() for line in lines],
    }  # fmt: skip


def show_plan(fabric: Emulated, lab: str, *, json: bool, done: bool) -> None:
    data = plan_data(fabric, lab)
    if json:
        print_json(data | {"up": done})
        return
    print_facts("a lab that stays until 'shardwise lab down'" if done else "would be built; nothing was done", [
        ("stands for", f"{fabric.cluster.name}, every rate divided by {fabric.dilation:,.0f}"),
        ("GPUs", f"{fabric.gpus}, a NIC at {card_rate(fabric) * 8 / 1e6:,.4g} Mbit/s"),
        ("namespaces", f"{data['namespaces'][0]} ... {data['namespaces'][-1]}, {len(data['namespaces'])} in all"),
        ("commands", f"{len(data['commands'])}; --json lists them"),
    ])  # fmt: skip
    if done:
        print_notes([f"a shell on a GPU: ip netns exec {data['namespaces'][0]} sh",
                     "a job on all: shardwise lab run -- torchrun train.py"], title="next")  # fmt: skip


def show_run(run: Measured, notes: Sequence[str] = ()) -> None:
    if run.rows:
        print_table(f"{run.fabric}: measured over predicted", HEADS, case_rows(run), breaks=0)
        print_gap()
        if axes := axis_rows(run):
            print_table("time in messages, once all ranks have come", AXIS_HEADS, axes)
            print_gap()
    else:
        print_table(f"{run.fabric}: every port", ("port", "bytes", "longest queue", "dropped"),
                    port_rows(run)[:MOST_PORTS])  # fmt: skip
        print_gap()
    print_notes([scale_text(run), counts_text(run), *[HEADS_NOTE] * bool(run.rows), *rank_notes(run), *notes])


def show_demo(found: DemoResult) -> None:
    print_notes(found.explained, title=found.demo)
    print_gap()
    print_table("what was found", ("", "measured", "predicted"), comparison_rows(found.comparisons), breaks=0)
    for run in found.runs:
        if run.rows:
            print_gap()
            print_table(f"{run.fabric}: measured over predicted", HEADS, case_rows(run), breaks=0)
    if found.runs:
        explained = [HEADS_NOTE] * any(run.rows for run in found.runs)
        print_notes([scale_text(found.runs[-1]), *(counts_text(run) for run in found.runs[:3]), *explained])
