"""`shardwise lab list`, `up`, `down`: what can be built here, one that stays, and all of it taken away."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise_lab.build import remove, standing
from shardwise_lab.cables import plant_of
from shardwise_lab.cli._flags import DryRun, FabricFlags, Json, become_root
from shardwise_lab.cli._page import show_plan
from shardwise_lab.demos import DEMOS
from shardwise_lab.emulated import emulated_of, fabric_names, named_cluster
from shardwise_lab.knobs import Knobs
from shardwise_lab.names import LOCKS, STAYS, forget, labs, note, noted
from shardwise_lab.probe import allowed, refuse_if_forbidden


class LabStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What the lab that is up was built from."""

    on: str
    knobs: Knobs


def standing_lab() -> LabStanding | None:
    text = noted(STAYS)
    return msgspec.json.decode(text, type=LabStanding) if text and STAYS in labs() else None


def listed(
    *, on: Annotated[str | None, Parameter(help="A fabric: its links by name.")] = None, json: Json = False
) -> int:
    """Demonstrations and fabrics by name, what this machine allows, and labs that are up."""
    can = allowed()
    links = [] if on is None else _links(on)
    fabrics = [(name, named_cluster(name)[0]) for name in fabric_names()]
    if json:
        print_json({
            "demos": [{"name": demo.name, "explained": demo.explained} for demo in DEMOS.values()],
            "fabrics": [{"name": name, "gpus": cluster.gpus, "what": cluster.source} for name, cluster in fabrics],
            "allowed": can, "up": {name: len(spaces) for name, spaces in labs().items()}, "links": links,
        })  # fmt: skip
        return 0
    print_table(
        "demonstrations", ("name", "what is shown"), [(d.name, d.explained[0]) for d in DEMOS.values()], words=2
    )
    print_gap()
    print_table("fabrics", ("name", "what it is", "GPUs"), [(n, c.source, c.gpus) for n, c in fabrics], words=2)
    if links:
        print_gap()
        print_table(f"links of {on}", ("link", "Mbit/s"), [(each["link"], each["mbit_per_s"]) for each in links])
    print_gap()
    print_facts("this machine", [
        ("a lab", "can be built" if not can.missing else f"cannot: it lacks {'; '.join(can.missing)}"),
        ("marks (ECN)", "by a program of ours in the kernel (BPF)" if can.marks else "none: no BPF"),
        ("up", ", ".join(f"{name} ({len(spaces)} namespaces)" for name, spaces in labs().items()) or "nothing"),
    ])  # fmt: skip
    return 0


def _links(on: str) -> list[dict[str, str | float]]:
    fabric = emulated_of(on)
    names, capacity = fabric.tree.links.name_of, fabric.tree.links.capacity
    return [{"link": names(link), "mbit_per_s": float(capacity[link]) * 8 / 1e6}
            for cable in plant_of(fabric).cables for link in (cable.out, cable.back)]  # fmt: skip


def up(
    on: Annotated[str, Parameter(help="A fabric of `lab list`, or any cluster of 2 to 16 GPUs.")] = "star4",
    /,
    *,
    fabric: FabricFlags = FabricFlags(),  # noqa: B008  frozen
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Builds a lab that stays until `lab down`."""
    built = fabric.fabric(on)
    if not dry_run:
        can = allowed()
        if not can.missing and not can.root:
            raise ValueError(
                "lab: without root a lab ends with its command; write 'lab run' or 'lab demo', or use sudo"
            )
        become_root()
        with standing(built, stays=True):
            note(STAYS, msgspec.json.encode(LabStanding(on=on, knobs=built.knobs)))
    show_plan(built, STAYS, json=json, done=not dry_run)
    return 0


def down(*, dry_run: DryRun = False, json: Json = False) -> int:
    """Removes every lab: the one that is up, those of ended commands, and running ones with their jobs."""
    found = labs()
    if found and not dry_run:
        refuse_if_forbidden()
        for name in found:
            remove(name)
        for path in LOCKS.iterdir() if LOCKS.is_dir() else ():
            forget(path.name)
    left = labs()
    if json:
        print_json({"removed": {} if dry_run else found, "left": left})
    else:
        told = [f"{name}: {len(spaces)} namespaces" for name, spaces in found.items()]
        print_notes(told or ["there was none"], title="would be removed" if dry_run else "removed")
    return int(bool(left) and not dry_run)
