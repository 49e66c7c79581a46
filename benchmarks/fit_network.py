"""Fits cost/curves/network.toml to measured collectives and reports errors on groups left out of the fit.

    python benchmarks/fit_network.py collectives.csv [--refit [--write]] [--held-out] [--json]

One node: every NVLink generation has its own constants. Network: one set for all, plus the latency that EFA adds over
InfiniBand (reported: it belongs in the catalog's level latency). A group is (source, GPU, GPUs).
"""

import argparse
import csv
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from shardwise.cost._links import Links, default_links
from shardwise.cost.network import network_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of

Floats = NDArray[np.float64]
CURVES = Path(__file__).resolve().parents[1] / "src" / "shardwise" / "cost" / "curves" / "network.toml"
START = Path(__file__).resolve().with_name("network_start.toml")
MIB = 2.0**20
EFA_LATENCY = 50e-6
"""where its fit starts, and what shipped constants are scored with: aws-p5 in the catalog states less"""
SPREAD = 6.0
"""a constant may move by this factor from where the fit starts"""
FABRICS = {"A100": "dgx-a100", "H100": "dgx-h100", "H200": "dgx-h200", "B200": "dgx-b200",
           "B300": "dgx-b300", "GB200": "gb200-nvl72", "GB300": "gb300-nvl72"}  # fmt: skip
EFA = {"A100": "aws-p4d", "H100": "aws-p5", "H200": "aws-p5", "B200": "aws-p5"}


@dataclass(frozen=True)
class Row:
    group: tuple[str, str, int]
    gpu: str
    op: str
    gpus: int
    nodes: int
    bytes: float
    seconds: float
    efa: bool
    algorithm: str | None

    @property
    def generation(self) -> int:
        return {"A": 3, "H": 4}.get(self.gpu[0], 5)


def read(path: Path) -> list[Row]:
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            gpu = line["gpu"].split("-")[0]
            if not line["time_us"] or gpu not in FABRICS or not line["gpus"]:
                continue
            fabric = line["fabric"]
            algorithm = "ring" if "Ring" in fabric else "nvls_tree" if fabric.endswith("NVLSTree") else None
            op = {"alltoall": "all_to_all"}.get(line["op"], line["op"])
            inside = int(line["nodes"]) == 1 or fabric == "NVL72"
            rows.append(
                Row((line["source"], gpu, int(line["gpus"])), gpu, op, int(line["gpus"]),
                    1 if inside else int(line["nodes"]), float(line["bytes"]), float(line["time_us"]) * 1e-6,
                    "EFA" in fabric, algorithm)
            )  # fmt: skip
    return rows


def cluster(row: Row, efa_latency: float) -> Cluster:
    if not (row.efa and row.nodes > 1):
        return cluster_of(f"{FABRICS[row.gpu]}:{max(row.gpus, 8)}")
    found = cluster_of(f"{EFA[row.gpu]}:{row.gpus}")
    level = msgspec.structs.replace(found.levels[1], latency_s=efa_latency)
    node = found.levels[0]
    if row.gpu == "B200":
        node = cluster_of("dgx-b200:8").levels[0]
    gpu = cluster_of(f"{FABRICS[row.gpu]}:8").gpu
    return msgspec.structs.replace(found, levels=(node, level), gpu=gpu)


class Batch:
    """Rows that share a cluster, an operation and an algorithm, as arrays."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.bytes = np.array([row.bytes for row in rows])
        self.size = np.array([row.gpus for row in rows])
        self.measured = np.array([row.seconds for row in rows])

    def predicted(self, links: Links, efa_latency: float) -> Floats:
        row = self.rows[0]
        network = network_of(cluster(row, efa_latency), links=links)
        return network.seconds(row.op, self.bytes, self.size, 1, algorithm=row.algorithm)


def batches(rows: Iterable[Row]) -> list[Batch]:
    found: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        gpus = 8 if row.nodes == 1 and row.gpus <= 8 else row.gpus
        found[(row.gpu, row.op, row.nodes > 1, row.efa, row.algorithm, gpus)].append(row)
    return [Batch(list(group)) for group in found.values()]


Path_ = tuple[str | int, ...]


def node_paths(generation: int) -> list[Path_]:
    name = f"nvlink{generation}"
    found: list[Path_] = [("link", name, "copy_bytes_per_s")]
    styles = {"ring": 3, "pairwise": 2} | ({"switch": 2} if generation > 3 else {})
    for style, protocols in styles.items():
        for field in ("base_us", "step_us", "rate"):
            if field == "step_us" and style != "ring":
                continue
            found += [("link", name, style, field, k) for k in range(protocols)]
    return found


def network_paths() -> list[Path_]:
    return [
        *[("link", "network", "switch", "step_us", k) for k in range(2)],
        ("link", "network", "switch", "stored", 0),
        ("link", "network", "switch", "rate", 1),
    ]


def get(tree: Any, path: Path_) -> float:
    for key in path:
        tree = tree[key]
    return float(tree)


def put(tree: Any, path: Path_, value: float) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def mutable(links: Links) -> Any:
    return json.loads(msgspec.json.encode(links))


def tie_trees(tree: Any) -> None:
    """Both trees send the same messages over the same cards; the plain one has a low-latency protocol besides."""
    plain, switch = tree["link"]["network"]["tree"], tree["link"]["network"]["switch"]
    for field in ("step_us", "rate", "stored"):
        plain[field][1:] = switch[field]


def spread(path: Path_) -> float:
    """Eight GPUs do not tell a long ring's cost per step from its start, so steps stay near the library's own."""
    return 1.4 if path[-2:] in (("step_us", 1), ("step_us", 2)) and "ring" in path else SPREAD


def fitted(
    links: Links, paths: list[Path_], rows: list[Row], efa_latency: float, free_efa: bool
) -> tuple[Links, float]:
    """Constants near those given that bring log(predicted / measured) closest to zero."""
    tree, groups = mutable(links), batches(rows)
    start = np.array([get(tree, path) for path in paths] + ([efa_latency * 1e6] if free_efa else []))
    scale = np.maximum(np.abs(start), 1e-3)
    upper = np.array([1.0 if "rate" in path else np.inf for path in paths] + ([np.inf] if free_efa else []))

    def unpack(x: Floats) -> tuple[Links, float]:
        values = np.minimum(np.exp(x) * scale, upper)
        for path, value in zip(paths, values, strict=False):
            put(tree, path, float(value))
        tie_trees(tree)
        return msgspec.convert(tree, Links), float(values[-1]) * 1e-6 if free_efa else efa_latency

    def residuals(x: Floats) -> Floats:
        found, latency = unpack(x)
        errors = [np.log(batch.predicted(found, latency) / batch.measured) for batch in groups]
        return np.concatenate([*errors, 0.02 * x])

    limit = np.log([spread(path) for path in paths] + ([SPREAD] if free_efa else []))
    best = least_squares(
        residuals,
        np.zeros_like(start),
        bounds=(-limit, limit),
        loss="soft_l1",
        f_scale=0.15,
        diff_step=0.02,
        max_nfev=40,
    )
    return unpack(best.x)


def start() -> Links:
    return msgspec.convert(tomllib.loads(START.read_text(encoding="utf-8")), Links)


def fit_all(rows: list[Row], efa_latency: float) -> tuple[Links, float]:
    links = start()
    for generation in (3, 4, 5):
        mine = [row for row in rows if row.nodes == 1 and row.generation == generation and trusted(row)]
        links, _ = fitted(links, node_paths(generation), mine, efa_latency, free_efa=False)
    across = [row for row in rows if row.nodes > 1 and trusted(row)]
    return fitted(links, network_paths(), across, efa_latency, free_efa=True)


def trusted(row: Row) -> bool:
    """Short collectives timed from the host carry its launch overhead; those of the graph-captured sweep do not."""
    return row.group[0] == "aiconfigurator" or row.bytes >= 16 * MIB or (row.nodes > 1 and row.bytes >= MIB)


def errors(links: Links, efa_latency: float, rows: list[Row]) -> list[tuple[Row, float]]:
    found = []
    for batch in batches(rows):
        relative = batch.predicted(links, efa_latency) / batch.measured - 1.0
        found += list(zip(batch.rows, relative.tolist(), strict=True))
    return found


def bucket(row: Row) -> str:
    if row.nodes > 1:
        return f"nodes {row.op} {'>=' if row.bytes >= 16 * MIB else '<'} 16 MiB" + (" efa" if row.efa else "")
    return f"node {row.op} {'>=' if row.bytes >= MIB else '<'} 1 MiB"


def summary(found: list[tuple[Row, float]], key: Callable[[Row], str]) -> dict[str, dict[str, float]]:
    by: dict[str, list[float]] = defaultdict(list)
    for row, error in found:
        by[key(row)].append(error)
    return {
        name: {"n": len(e), "mape": round(float(np.mean(np.abs(e))), 4), "bias": round(float(np.mean(e)), 4)}
        for name, e in sorted(by.items())
    }


def held_out(links: Links, rows: list[Row], efa_latency: float) -> list[tuple[Row, float]]:
    """Every group predicted by constants fitted, from the same start, without it.

    Node and network are separate fits: a group over nodes keeps the node constants of the full fit, in which it had
    no part.
    """
    found = []
    fresh = start()
    over_nodes = msgspec.structs.replace(links, link={**links.link, "network": fresh.link["network"]})
    for group in sorted({row.group for row in rows}):
        mine = [row for row in rows if row.group == group]
        rest = [row for row in rows if row.group != group]
        if mine[0].nodes > 1:
            across = [row for row in rest if row.nodes > 1 and trusted(row)]
            fit, latency = fitted(over_nodes, network_paths(), across, EFA_LATENCY, free_efa=True)
        else:
            generation = mine[0].generation
            same = [row for row in rest if row.nodes == 1 and row.generation == generation and trusted(row)]
            fit, latency = fitted(fresh, node_paths(generation), same, efa_latency, free_efa=False)[0], efa_latency
        found += errors(fit, latency, mine)
    return found


def toml(links: Links) -> str:
    tree = mutable(links)
    lines = [f"cards_per_group = {tree['cards_per_group']}"]
    for name, link in tree["link"].items():
        lines += ["", f"[link.{name}]"]
        if link["copy_bytes_per_s"]:
            lines.append(f"copy_bytes_per_s = {link['copy_bytes_per_s']:.4g}")
        for style in ("ring", "tree", "switch", "pairwise"):
            if not link.get(style):
                continue
            lines.append(f"[link.{name}.{style}]")
            for field in ("base_us", "step_us", "rate", "stored"):
                if link[style].get(field):
                    lines.append(f"{field} = [{', '.join(f'{value:.4g}' for value in link[style][field])}]")
    return "\n".join(lines) + "\n"


def header(text: str) -> str:
    """The comment lines at the top, which say where the constants come from."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true", help="write the constants where the package reads them")
    parser.add_argument("--refit", action="store_true", help="fit; without it the shipped constants are only scored")
    parser.add_argument("--held-out", action="store_true", help="leave each group out in turn (minutes)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.data.is_file():
        print(f"skipped: {args.data} is not here")
        return
    rows, links, efa = read(args.data), default_links(), EFA_LATENCY
    if args.refit:
        links, efa = fit_all(rows, EFA_LATENCY)
        print(f"EFA latency {efa * 1e6:.1f} us", file=sys.stderr)
    if args.write:
        CURVES.write_text(header(CURVES.read_text(encoding="utf-8")) + toml(links), encoding="utf-8")
    found = {"all": summary(errors(links, efa, rows), bucket), "efa_latency_us": round(efa * 1e6, 1)}
    found["by_group"] = summary(errors(links, efa, rows), lambda row: " ".join(map(str, row.group)))
    if args.held_out:
        found["held_out"] = summary(held_out(links, rows, efa), bucket)
    for part, table in found.items():
        for name, figures in table.items() if isinstance(table, dict) and not args.json else ():
            print(part, name, figures)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
