"""Builds a lab and takes it away again: namespaces, cables, shaping and routes, by `ip` and `tc` alone.

Every interface is made inside a namespace of ours, never in the machine's own. Before the first one is made a keeper is
started: a shell that waits for the end of a pipe this process holds, and then removes all that carries the lab's
number. It does so however this process ends; the next start and `lab down` do it too, should the keeper be killed.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shardwise_lab.cables import Cable, Plant, Route, host_address, plant_of
from shardwise_lab.emulated import Emulated
from shardwise_lab.inside import set_sysctls
from shardwise_lab.knobs import Knobs
from shardwise_lab.names import LOCKS, PREFIX, SPACES, STAYS, abandoned, forget, hold, labs, space_of

SWITCH = {
    "ip_forward": "1", "conf/all/rp_filter": "0", "conf/default/rp_filter": "0", "conf/all/send_redirects": "0",
    "conf/default/send_redirects": "0", "fib_multipath_hash_policy": "1", "conf/all/ignore_routes_with_linkdown": "1",
    "conf/default/ignore_routes_with_linkdown": "1",
    # who asks for a name is told at once, every time, that nobody answers: torch does, for every connection
    "icmp_ratelimit": "0",
}  # fmt: skip
PATIENT = " rto_min 1s"
REMOVES = """
remove() {{
  for path in {spaces}/{prefix}-{lab}-*; do
    [ -e "$path" ] || continue
    name=${{path##*/}}
    for pid in $(ip netns pids "$name" 2> /dev/null); do kill -9 "$pid" 2> /dev/null; done
    ip netns del "$name" 2> /dev/null
  done
  rm -f {locks}/{lab} {locks}/{lab}.json; rmdir {locks} 2> /dev/null
}}
"""
KEEPS = REMOVES + 'while read line; do [ "$line" = stay ] && exit 0; done\nremove\n'


@dataclass(frozen=True)
class Built:
    lab: str
    fabric: Emulated
    plant: Plant

    def space(self, vertex: str) -> str:
        return space_of(self.lab, vertex)

    @property
    def hosts(self) -> list[str]:
        return [self.space(host) for host in self.plant.hosts]


def commands(lab: str, fabric: Emulated, plant: Plant) -> dict[str, list[str]]:
    """What is done, in order: namespace -> lines for `ip -n NAME` or `tc -n NAME`, the first word says which. Every
    packet is a segment, as on a wire: counters take several joined into one for a single header."""
    lines: dict[str, list[str]] = {space_of(lab, vertex): ["ip link set lo up"] for vertex in plant.vertices}
    for cable in plant.cables:
        for name, made in _cable(lab, fabric, cable):
            lines[name] += made
    for route in plant.routes:
        lines[space_of(lab, route.vertex)].append(_route(route, fabric.knobs if route.vertex.startswith("h") else None))
    return lines


def _cable(lab: str, fabric: Emulated, cable: Cable) -> Iterator[tuple[str, list[str]]]:
    first, second = (space_of(lab, end) for end in cable.ends)
    (a, b), (here, there) = cable.devices, cable.addresses
    yield first, [f"ip link add {a} type veth peer name {b} netns {second}"]
    for space, device, own, other, link in ((first, a, here, there, cable.out), (second, b, there, here, cable.back)):
        yield space, [
            f"ip addr add {own} peer {other} dev {device}", f"ip link set {device} gso_max_segs 1 up",
            f"tc qdisc replace dev {device} root {shaping(fabric, link)}",
        ]  # fmt: skip


def shaping(fabric: Emulated, link: int) -> str:
    knobs, rate = fabric.knobs, float(fabric.tree.links.capacity[link])
    return f"tbf rate {round(rate * 8)}bit burst {knobs.burst_bytes}b limit {knobs.buffer_bytes}b"


def _route(route: Route, knobs: Knobs | None) -> str:
    """`knobs`: of a GPU's route, None at a switch."""
    target = f"{route.target}/32" if route.target else "default"
    if len(route.ways) == 1:
        ((via, device),) = route.ways
        own = ""
        if knobs is not None:
            own = f" src {host_address(int(route.vertex[1:]))} congctl {knobs.congestion}"
            # a full queue of a slow port takes longer than TCP's least patience, and nothing is lost there
            own += PATIENT if knobs.window_bytes is not None else ""
        return f"ip route replace {target} via {via} dev {device}{own}"
    return f"ip route replace {target}" + "".join(f" nexthop via {via} dev {device}" for via, device in route.ways)


def construct(lab: str, fabric: Emulated) -> Built:
    plant = plant_of(fabric)
    lines = commands(lab, fabric, plant)
    for name in lines:
        run_tool(["ip", "netns", "add", name])
    # cables first: an address can be given only once both ends are there
    cables = {name: [line for line in all_ if "link add" in line] for name, all_ in lines.items()}
    rest = {name: [line for line in all_ if "link add" not in line] for name, all_ in lines.items()}
    for part in (cables, rest):
        for name, all_ in part.items():
            for tool in ("ip", "tc"):
                _batch(tool, name, (line.removeprefix(f"{tool} ") for line in all_ if line.startswith(f"{tool} ")))
    for number, vertex in enumerate(plant.vertices):
        set_sysctls(space_of(lab, vertex), _host_sysctls(fabric) if vertex.startswith("h") else SWITCH)
        _keep_order(space_of(lab, vertex), number)
    return Built(lab, fabric, plant)


def _keep_order(space: str, number: int) -> None:
    """All that a device receives is taken up by one core, as packets on a cable come one after another. A token bucket
    sends from whichever core has its timer; two cores that take up what it sent can overtake each other, and TCP then
    sends again what was never lost. Only root may say so; without it, it stays as it is."""
    cores = sorted(os.sched_getaffinity(0))
    mask = core_mask(cores[number % len(cores)])
    write = f"for file in /sys/class/net/*/queues/rx-*/rps_cpus; do echo {mask} > $file; done"
    subprocess.run(["ip", "netns", "exec", space, "sh", "-c", write], capture_output=True, check=False)


def core_mask(core: int) -> str:
    """As the kernel reads it: hexadecimal, words of 32 cores by commas."""
    return ",".join([f"{1 << core % 32:x}", *["00000000"] * (core // 32)])


def _host_sysctls(fabric: Emulated) -> dict[str, str]:
    found = {**SWITCH, "tcp_no_metrics_save": "1"}
    if fabric.knobs.ecn_bytes is not None:
        found["tcp_ecn"] = "1"
    if fabric.knobs.window_bytes is not None:
        # the kernel keeps half of a receive buffer for itself
        room = 2 * fabric.knobs.window_bytes
        found["tcp_rmem"] = f"4096 {room} {room}"
        # nothing is lost there: a probe for a lost tail would only send twice what waits in a queue
        found["tcp_early_retrans"] = "0"
    return found


def _batch(tool: str, space: str, lines: Iterable[str]) -> None:
    # `ip` prefixes its lines itself: a batch line is an object and a command
    text = "\n".join(lines)
    if text:
        run_tool([tool, "-n", space, "-batch", "-"], text + "\n")


def run_tool(command: list[str], given: str = "") -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())[:300]
        raise RuntimeError(f"lab: {' '.join(command)} failed: {said or done.returncode}")


def remove(lab: str) -> None:
    """All namespaces of a lab and every process inside them."""
    script = REMOVES.format(spaces=SPACES, prefix=PREFIX, lab=lab, locks=LOCKS) + "remove\n"
    subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    forget(lab)


def sweep() -> list[str]:
    """Removes what ended processes left; says which labs that were."""
    found = [lab for lab in labs() if abandoned(lab)]
    for lab in found:
        remove(lab)
    return found


@contextmanager
def standing(fabric: Emulated, *, stays: bool = False) -> Iterator[Built]:
    """A lab for as long as the block runs; with `stays` until `lab down`."""
    sweep()
    lab = STAYS if stays else str(os.getpid())
    if lab in labs():
        raise ValueError("lab: one is up already; 'shardwise lab down' removes it")
    with kept(lab, stays=stays):
        yield construct(lab, fabric)


@contextmanager
def kept(lab: str, *, stays: bool = False) -> Iterator[None]:
    """What carries the lab's number goes with the block, or with this process however it ends; with `stays` it goes
    only where the block fails."""
    with hold(lab):
        script = KEEPS.format(spaces=SPACES, prefix=PREFIX, lab=lab, locks=LOCKS)
        # a session of its own, so that Ctrl-C does not reach it
        with subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as keeper:  # fmt: skip
            try:
                yield
            except BaseException:
                stays = False
                raise
            finally:
                if not stays:
                    remove(lab)
                elif keeper.stdin is not None:
                    keeper.stdin.write(b"stay\n")
                    keeper.stdin.flush()
