"""What goes wrong while a job runs: a cable is cut, or a link becomes slow, so many seconds after the job began."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from msgspec import Struct

from shardwise.fabric.broken import link_named
from shardwise_lab.build import Built, commands, run_tool, shaping
from shardwise_lab.cables import Cable, Plant, host_address
from shardwise_lab.emulated import Emulated

MOST_S = 3600.0


class Fault(Struct, frozen=True, kw_only=True):
    link: str
    at_s: float
    share: float
    """of its speed that is left; 0: the cable is cut, both ways"""


def fault_of(text: str, flag: str) -> Fault:
    """'LINK@2' (cut after two seconds), or 'LINK=0.25@2'."""
    name, at, seconds = text.rpartition("@")
    share = "0"
    if flag == "slow-at":
        name, _, share = name.rpartition("=")
    form = "LINK=0.25@2" if flag == "slow-at" else "LINK@2"
    try:
        found = Fault(link=name, at_s=float(seconds), share=float(share))
    except ValueError:
        raise ValueError(f"{flag}: {text[:60]!r} is not a link and moment; write {form}") from None
    if not at or not name or not 0 <= found.at_s <= MOST_S or not (0 < found.share < 1 or flag == "cut"):
        raise ValueError(f"{flag}: {text[:60]!r} is not a link and moment; write {form}")
    return found


def check_faults(fabric: Emulated, faults: Sequence[Fault]) -> None:
    for fault in faults:
        link_named(fabric.tree, fault.link, "slow-at" if fault.share else "cut")


@contextmanager
def happening(built: Built, faults: Sequence[Fault]) -> Iterator[None]:
    """Each at its moment, counted from here."""
    over = Event()

    def wait(fault: Fault) -> None:
        if not over.wait(fault.at_s):
            happen(built, fault)

    threads = [Thread(target=wait, args=(fault,), daemon=True) for fault in faults]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def happen(built: Built, fault: Fault) -> None:
    link, cable, end = _found(built, fault)
    space, device = built.space(cable.ends[end]), cable.devices[end]
    if fault.share:
        rate = round(float(built.fabric.tree.links.capacity[link]) * fault.share * 8)
        knobs = built.fabric.knobs
        shaped = f"tbf rate {rate}bit burst {knobs.burst_bytes}b limit {knobs.buffer_bytes}b"
        run_tool(["tc", "-n", space, "qdisc", "replace", "dev", device, "root", *shaped.split()])
        return
    run_tool(["ip", "-n", space, "link", "set", device, "down"])
    for leaf, lines in rerouted(built.plant, cable).items():
        for line in lines:
            run_tool(["ip", "-n", built.space(leaf), *line.split()])


def mend(built: Built, fault: Fault) -> None:
    """As it was: the cable plugged in again, the link at its full speed. A device that comes up has lost its routes."""
    link, cable, end = _found(built, fault)
    space, device = built.space(cable.ends[end]), cable.devices[end]
    if fault.share:
        run_tool(["tc", "-n", space, "qdisc", "replace", "dev", device, "root",
                  *shaping(built.fabric, link).split()])  # fmt: skip
        return
    run_tool(["ip", "-n", space, "link", "set", device, "up"])
    for name, lines in commands(built.lab, built.fabric, built.plant).items():
        for line in lines:
            if line.startswith("ip route"):
                run_tool(["ip", "-n", name, *line.split()[1:]])
    for leaf, lines in rerouted(built.plant, cable).items():
        for line in lines:
            run_tool(["ip", "-n", built.space(leaf), "route", "del", line.split()[2]])


def _found(built: Built, fault: Fault) -> tuple[int, Cable, int]:
    """(link, its cable, which end of it sends)."""
    link = link_named(built.fabric.tree, fault.link, "slow-at" if fault.share else "cut")
    cable = next(each for each in built.plant.cables if link in (each.out, each.back))
    return link, cable, 0 if link == cable.out else 1


def rerouted(plant: Plant, cut: Cable) -> dict[str, list[str]]:
    """What a routing protocol would do when a cable between leaf and spine is away: other leaves leave that spine out
    on their way to that leaf. Hosts have one cable, so nothing helps them."""
    leaf, spine = cut.ends
    if not spine.startswith("s"):
        return {}
    under = [each.ends[0] for each in plant.cables if each.ends[1] == leaf]
    found: dict[str, list[str]] = {}
    for route in plant.routes:
        if route.vertex.startswith("l") and route.vertex != leaf and len(route.ways) > 1:
            gone = next(each.addresses[1] for each in plant.cables if each.ends == (route.vertex, spine))
            ways = "".join(f" nexthop via {via} dev {device}" for via, device in route.ways if via != gone)
            found[route.vertex] = [f"route replace {host_address(int(host[1:]))}/32{ways}" for host in under]
    return found
