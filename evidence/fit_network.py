"""Fits cost/links.toml to measured collectives and reports errors on fabrics left out of the fit.

    python evidence/fit_network.py collectives.csv [--refit | --rings [--write]] [--held-out] [--json]

One node: every NVLink generation has its own constants. Network: one set for all, plus the latency that EFA adds over
InfiniBand (reported: it belongs in the catalog's level latency). A fabric is a GPU with its links, whoever measured it.
Rings over nodes: published gathers and reduce-scatters (evidence/timed/rings-across-nodes.csv); `--rings` fits these
constants alone.
"""

import argparse
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from _collective_rows import MIB, Floats, Row, batches, errors, read, read_rings
from shardwise.cost._links import NetworkConstants, default_links

LINKS = Path(__file__).resolve().parents[1] / "src" / "shardwise" / "cost" / "links.toml"
START = Path(__file__).resolve().with_name("network_start.toml")
EFA_LATENCY = 50e-6
"""where its fit starts"""
SPREAD = 6.0
"""a constant may move by this factor from where the fit starts"""
SWEPT, SPARSE = 4e-4, 1.0
"""rows that the start of a constant counts for: where all operations were swept the rows decide; where a few sites
measured all_reduce only, each of the library's own constants counts as one row"""
ROBUST = 0.15
"""relative errors beyond this count in proportion, not squared"""


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


def ring_paths() -> list[Path_]:
    return [("link", "network", "ring", field, k) for field in ("step_us", "inside_us") for k in (1, 2)]


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


def mutable(links: NetworkConstants) -> Any:
    return json.loads(msgspec.json.encode(links))


def tie_trees(tree: Any) -> None:
    """Both trees send the same messages over the same cards; the plain one has a low-latency protocol besides."""
    plain, switch = tree["link"]["network"]["tree"], tree["link"]["network"]["switch"]
    for field in ("step_us", "rate", "stored"):
        plain[field][1:] = switch[field]


def spread(path: Path_) -> float:
    """Eight GPUs do not tell a long ring's cost per step from its start, so steps stay near the library's own."""
    near = path[-2:] in (("step_us", 1), ("step_us", 2)) and "ring" in path and "network" not in path
    return 1.4 if near else SPREAD


def fitted(
    links: NetworkConstants,
    paths: list[Path_],
    rows: list[Row],
    efa_latency: float | None,
    free_efa: bool,
    prior: float,
) -> tuple[NetworkConstants, float | None]:
    """Constants near those given that bring log(predicted / measured) closest to zero.

    `prior`: how many rows the start of a constant counts for; what the rows do not tell stays as the library has it.
    """
    tree, groups = mutable(links), batches(rows)
    first = efa_latency or EFA_LATENCY
    begin = np.array([get(tree, path) for path in paths] + ([first * 1e6] if free_efa else []))
    scale = np.maximum(np.abs(begin), 1e-3)
    upper = np.array([1.0 if "rate" in path else np.inf for path in paths] + ([np.inf] if free_efa else []))

    def unpack(x: Floats) -> tuple[NetworkConstants, float | None]:
        values = np.minimum(np.exp(x) * scale, upper)
        for path, value in zip(paths, values, strict=False):
            put(tree, path, float(value))
        tie_trees(tree)
        return msgspec.convert(tree, NetworkConstants), float(values[-1]) * 1e-6 if free_efa else efa_latency

    def residuals(x: Floats) -> Floats:
        found, latency = unpack(x)
        error = np.concatenate([np.log(batch.predicted(found, latency) / batch.measured) for batch in groups])
        soft = np.sign(error) * ROBUST * np.sqrt(2.0 * (np.sqrt(1.0 + (error / ROBUST) ** 2) - 1.0))
        return np.concatenate([soft, np.sqrt(prior) * x])

    limit = np.log([spread(path) for path in paths] + ([SPREAD] if free_efa else []))
    best = least_squares(residuals, np.zeros_like(begin), bounds=(-limit, limit), diff_step=0.02, max_nfev=40)
    return unpack(best.x)


def start() -> NetworkConstants:
    return msgspec.convert(tomllib.loads(START.read_text(encoding="utf-8")), NetworkConstants)


def fit_all(rows: list[Row]) -> tuple[NetworkConstants, float | None]:
    links = start()
    for generation in (2, 3, 4, 5):
        mine = [row for row in rows if row.nodes == 1 and row.generation == generation and row.trusted]
        if mine:
            prior = SWEPT if {row.op for row in mine} > {"all_reduce"} else SPARSE
            links, _ = fitted(links, node_paths(generation), mine, None, free_efa=False, prior=prior)
        else:
            links = without(links, generation)
    links = fit_rings(links, read_rings())
    across = [row for row in rows if row.nodes > 1 and row.trusted]
    return fitted(links, network_paths(), across, EFA_LATENCY, free_efa=True, prior=SPARSE)


def fit_rings(links: NetworkConstants, rows: list[Row]) -> NetworkConstants:
    """Only what a step costs of a ring that leaves its node, from the library's own."""
    network = msgspec.structs.replace(links.link["network"], ring=start().link["network"].ring)
    begin = msgspec.structs.replace(links, link={**links.link, "network": network})
    mine = [row for row in rows if row.trusted]
    return fitted(begin, ring_paths(), mine, None, free_efa=False, prior=SPARSE)[0]


def rings_held_out(links: NetworkConstants, rows: list[Row]) -> list[tuple[Row, float]]:
    """Every source of rings predicted by constants fitted without its rows."""
    found = []
    for name in sorted({row.source for row in rows}):
        others = fit_rings(links, [row for row in rows if row.source != name])
        found += errors(others, None, [row for row in rows if row.source == name])
    return found


def without(links: NetworkConstants, generation: int) -> NetworkConstants:
    """An NVLink generation nobody measured takes the nearest one's constants."""
    kept = {name: link for name, link in links.link.items() if name != f"nvlink{generation}"}
    return msgspec.structs.replace(links, link=kept)


def bucket(row: Row) -> str:
    if row.nodes > 1:
        return f"nodes {row.op} {'>=' if row.bytes >= 16 * MIB else '<'} 16 MiB" + (" efa" if row.efa else "")
    return f"node {row.op} {'>=' if row.bytes >= MIB else '<'} 1 MiB"


def ring_test(row: Row) -> str:
    return f"{row.source}, {row.gpus // row.nodes} GPUs a node, {'many' if row.gpus > 64 else 'few'}"


def summary(found: list[tuple[Row, float]], key: Callable[[Row], str]) -> dict[str, dict[str, float]]:
    by: dict[str, list[float]] = defaultdict(list)
    for row, error in found:
        by[key(row)].append(error)
    return {
        name: {"n": len(e), "mape": round(float(np.mean(np.abs(e))), 4), "bias": round(float(np.mean(e)), 4)}
        for name, e in sorted(by.items())
    }


def held_out(rows: list[Row], key: Callable[[Row], str]) -> list[tuple[Row, float]]:
    """Every fabric (or whatever `key` names) predicted by constants fitted, from the same start, without its rows."""
    found = []
    for name in sorted({key(row) for row in rows}):
        links, latency = fit_all([row for row in rows if key(row) != name])
        found += errors(links, latency, [row for row in rows if key(row) == name])
    return found


def toml(links: NetworkConstants) -> str:
    tree = mutable(links)
    lines = [f"cards_per_group = {tree['cards_per_group']}"]
    for name, link in tree["link"].items():
        lines += ["", f"[link.{name}]"]
        if link["gpu"]:
            lines.append(f'gpu = "{link["gpu"]}"')
        if link["copy_bytes_per_s"]:
            lines.append(f"copy_bytes_per_s = {link['copy_bytes_per_s']:.4g}")
        for style in ("ring", "tree", "switch", "pairwise"):
            if not link.get(style):
                continue
            lines.append(f"[link.{name}.{style}]")
            for field in ("base_us", "step_us", "rate", "stored", "inside_us"):
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
    parser.add_argument("--rings", action="store_true", help="fit only the steps of rings over nodes")
    parser.add_argument("--held-out", action="store_true", help="leave each fabric out in turn (minutes)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.data.is_file():
        print(f"skipped: {args.data} is not here")
        return
    rows, links = read(args.data), default_links()
    efa: float | None = None
    if args.refit:
        links, efa = fit_all(rows)
        print(f"EFA latency {(efa or 0.0) * 1e6:.1f} us", file=sys.stderr)
    elif args.rings:
        links = fit_rings(links, read_rings())
    if args.write:
        LINKS.write_text(header(LINKS.read_text(encoding="utf-8")) + toml(links), encoding="utf-8")
    scored = errors(links, efa, rows)
    found = {"all": summary(scored, bucket), "by_fabric": summary(scored, lambda row: row.fabric)}
    found["by_source"] = summary(scored, lambda row: f"{row.source} {row.gpu} {row.gpus}")
    rings = read_rings()
    found["rings"] = summary(errors(links, None, rings), ring_test)
    if args.held_out:
        found["rings_held_out"] = summary(rings_held_out(links, rings), ring_test)
        found["held_out"] = summary(held_out(rows, lambda row: row.fabric), bucket)
    for part, table in found.items() if not args.json else ():
        for name, figures in table.items():
            print(part, name, figures)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
