"""Whether the house keeps its promises: how many files a plug-in takes, names that mean two things, what report runs.

`python benchmarks/house.py` prints them, `--budget` a house.toml for today's lines, `--json` ends with a line
of JSON:
- files_per_plugin: for each kind, the files that were added until a sample (tests/plugins) was found and used; null:
  it was not
- duplicate_class_names: public classes of src that share their name with another
- files_per_optimizer: of these, what a new optimizer takes
- report_runs_model: whether a function of report/ leads to the estimate, the simulation, the scan or the flow solver
- signatures_of_five: functions that take five or more of model, cluster, job, stack, policy and network apart, where
  one `Case` would hold them together
- stack_fields_max: most fields of one struct of those that describe training programs
- constants_set_on_rows: numbers of all stacks that were fitted or set on measured rows
- groups: groups of rows (source, model, GPU, GPUs) behind them; null where the tables are not beside the repository
- constants_per_group_max: of the stack that has the most
- lines_src, lines_core (without the rooms that need torch), packages_top, verbs, types_message, types_question,
  types_answer_by_hand, programs, settings_single_use, files_per_axis, files_per_optimizer, files_per_plan_column,
  docs_words, readme_words, kernel_laws_gap_max: counted in `_house_sizes.py`, where each says how
"""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from _accuracy_data import has_truth
from _accuracy_support import groups_of
from _accuracy_support import numbers_on_rows as numbers_of
from _call_graph import calls_of, modules_of, way
from _house_sizes import budget_of, lines_by_package, sizes
from shardwise.spec.software import stack_names, stack_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "shardwise"
SAMPLES = ROOT / "tests" / "plugins"
MODEL = ("estimate", "simulate", "joint_step", "scan", "step_load", "max_min")
"""functions that run the model, by name: each must be defined somewhere below report"""
ABOVE = ("shardwise.report.", "shardwise.show.cli.", "shardwise.plugins.sync.")
"""rooms whose functions of these names are others: verbs, and the simulation of workers"""


APART = ({"Model"}, {"Cluster"}, {"Job"}, {"Stack"}, {"Policy", "Policies"}, {"Network"})
"""types of what a case is made of, and the policy beside it"""


def files_per_plugin() -> dict[str, int | None]:
    kinds = {path.name: path for path in sorted(SAMPLES.iterdir()) if path.is_dir() and path.name[0] != "_"}
    environment = os.environ | {
        "SHARDWISE_PLUGINS": os.pathsep.join(map(str, kinds.values())), "PYTHONPATH": str(SOURCE.parent),
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, str(SAMPLES / "checks.py")], env=environment, capture_output=True, text=True, check=True
    )
    wrong = json.loads(ended.stdout.splitlines()[-1])
    for kind, why in wrong.items():
        if why:
            print(f"{kind}: {why}")
    files = {
        kind: sum(path.is_file() and path.suffix != ".pyc" for path in folder.rglob("*"))
        for kind, folder in kinds.items()
    }
    return {kind: None if wrong.get(kind, "no check") else count for kind, count in files.items()}


def duplicate_class_names(trees: dict[str, ast.Module]) -> dict[str, int]:
    names = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in sorted(names.items()) if count > 1}


def report_runs_model(trees: dict[str, ast.Module]) -> list[str]:
    """The shortest chain of calls from a function of report/ to the model; empty where there is none."""
    graph = calls_of(trees)
    inside = {name for name in graph if name.startswith("shardwise.report.")}
    ends = {name for name in graph if name.rpartition(".")[2] in MODEL and not name.startswith(ABOVE)}
    missing = set(MODEL) - {name.rpartition(".")[2] for name in ends}
    if missing:
        raise LookupError(f"no function of src is called {', '.join(sorted(missing))}: name here what runs the model")
    return way(graph, inside, ends)


def signatures_of_five(trees: dict[str, ast.Module]) -> list[str]:
    found = []
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                words = {
                    word.id for argument in given if argument.annotation
                    for word in ast.walk(argument.annotation) if isinstance(word, ast.Name)
                }  # fmt: skip
                if sum(bool(words & kinds) for kinds in APART) >= 5:
                    found.append(f"{module}.{node.name}")
    return found


def stack_fields_max() -> int:
    room = SOURCE / "spec" / "software"
    files = sorted(room.rglob("*.py")) if room.is_dir() else [SOURCE / "spec" / "stack.py"]
    return max(
        sum(isinstance(field, ast.AnnAssign) for field in node.body)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )


def numbers_on_rows() -> dict[str, Any]:
    """How many numbers the measured rows had to teach, and how much they know."""
    counts = {name: len(numbers_of(stack_of(name))) for name in stack_names()}
    some = {name: count for name, count in counts.items() if count}
    found: dict[str, Any] = {"constants_set_on_rows": sum(some.values()), "groups": None}
    if has_truth():
        groups = {name: groups_of(stack_of(name)) for name in some}
        found["groups"] = sum(groups.values())
        found["constants_per_group_max"] = round(max(some[name] / groups[name] for name in some), 3)
    return found


def main(arguments: list[str]) -> int:
    if "--budget" in arguments:
        print(budget_of(lines_by_package()), end="")
        return 0
    trees = modules_of(SOURCE)
    twice, chain, long = duplicate_class_names(trees), report_runs_model(trees), signatures_of_five(trees)
    found: dict[str, Any] = {
        "stack_fields_max": stack_fields_max(),
        **numbers_on_rows(),
        "duplicate_class_names": len(twice),
        "report_runs_model": bool(chain),
        "signatures_of_five": len(long),
        "files_per_plugin": (plugins := files_per_plugin()),
        **sizes(),
        "files_per_optimizer": plugins["optimizer"],
    }
    for key, value in found.items():
        print(f"{key:24} {value}")
    print(f"{'classes of one name':24} {', '.join(twice) or 'none'}")
    print(f"{'long signatures':24} {', '.join(long) or 'none'}")
    print(f"{'report to the model':24} {' > '.join(chain) or 'no way'}")
    if "--json" in arguments:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
