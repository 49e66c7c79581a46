"""How large the house is, how often one idea is written down, whether its kernel laws agree: each from the tree.

Every function reads source by syntax tree or by words and says in its first line how it counts.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "shardwise"
NEEDS_TORCH = ("run",)
"""the room that runs on the user's machine"""
MAY_BE_NONE = ("types_answer_by_hand", "settings_single_use", "files_per_plan_column")
SHOWS = ("answers", "show")
ROOM = 1.02
RENDERERS = ("answered", "say_error")
AXIS_NAMES = {"dp", "tp", "pp", "vpp", "cp", "ep", "etp"}
AXIS, OPTIMIZER = "cp", "muon"
"""the axis, and the optimizer beside AdamW, whose names are looked for"""
PARTS_OF_A_QUESTION = ({"model"}, {"cluster"}, {"job"}, {"policy", "policies"}, {"stack", "software", "program"})
ENCODED = {
    ("schema", "published_schema"), ("schema", "_of_file"), ("_option_schema", "question_schema"),
    ("_option_schema", "_schema"), ("_option_schema", "verb_schema"),
    ("_agent_tools", "answered"), ("_agent_tools", "shortened"), ("views", "table"),
    ("ask", "table_of"), ("ask", "_numbers"),
}  # fmt: skip
"""(module, function): JSON Schemas, the page's table of questions, answers of verbs decoded for agents, rows for a
DataFrame"""
RANKING = re.compile(r"\b(PlanResult|Ranking|plan\.plans|plan\.best)\b")
COLUMNS_OF_A_PLAN = {"policy", "step_s", "peak_bytes", "tokens_per_s_per_gpu"}
SHAPES = (
    (8192, 8192, 8192), (4096, 4096, 4096), (8192, 28672, 8192), (8192, 4096, 4096), (16384, 14336, 4096),
    (2048, 4096, 4096), (8192, 1024, 8192), (8192, 8192, 1024),
)  # fmt: skip
"""GEMMs of Llama layers and square ones: m, n, k"""

Trees = dict[Path, ast.Module]


def trees_of(source: Path = SOURCE) -> Trees:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))}


def lines_by_package(source: Path = SOURCE) -> dict[str, int]:
    """Lines of the .py files of each folder of src/shardwise; those beside the folders together as `modules`."""
    counts: Counter[str] = Counter()
    for path in sorted(source.rglob("*.py")):
        room, *rest = path.relative_to(source).parts
        counts[room if rest else "modules"] += len(path.read_text(encoding="utf-8").splitlines())
    return dict(sorted(counts.items()))


def over_budget(lines: dict[str, int], budgets: dict[str, dict[str, Any]]) -> list[str]:
    """What house.toml does not allow: a package above its lines, one without any, an entry without its package."""
    wrong = [f"{name}: it has no budget; add [{name}] with its lines to house.toml" for name in lines.keys() - budgets]
    wrong += [f"{name}: it is in house.toml and not in src/shardwise; remove it" for name in budgets.keys() - lines]
    wrong += [
        f"{name}: {count:,} lines, budget {budgets[name]['lines']:,}; shrink it, or raise lines in house.toml with a "
        "reason that names what the growth replaces"
        for name, count in lines.items() if name in budgets and count > budgets[name]["lines"]
    ]  # fmt: skip
    return sorted(wrong)


def budget_of(lines: dict[str, int]) -> str:
    """A house.toml for these lines, each with two per cent of room."""
    return "\n".join(f"[{name}]\nlines = {int(count * ROOM)}\n" for name, count in lines.items())


def packages_top(source: Path = SOURCE) -> int:
    """Folders of src/shardwise that are packages."""
    return sum((folder / "__init__.py").is_file() for folder in source.iterdir())


def verbs() -> int:
    """Verbs that the command line registers."""
    from shardwise.show.cli._verbs import VERBS

    return len(VERBS)


def _fields(trees: Trees) -> Iterator[tuple[str, set[str]]]:
    """Every class and the fields it declares."""
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                targets = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
                yield node.name, {target.id for target in targets if isinstance(target, ast.Name)}


def types_message(trees: Trees) -> list[str]:
    """Classes that declare a field `op` and one that is `bytes` or ends so: messages, under whatever name."""
    return [name for name, fields in _fields(trees)
            if "op" in fields and any(field.rstrip("_").endswith("bytes") for field in fields)]  # fmt: skip


def types_question(trees: Trees) -> list[str]:
    """Classes that hold three or more of model, cluster, job, policy and software as fields; one that states their
    names, as an answer does, holds nothing."""
    return sorted(
        node.name
        for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        if sum(bool(_held(node) & part) for part in PARTS_OF_A_QUESTION) >= 3
    )  # fmt: skip


def _held(node: ast.ClassDef) -> set[str]:
    """Fields of other types than text."""
    return {
        item.target.id
        for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        if not re.match(r"(Annotated\[)?str\b", ast.unparse(item.annotation).strip("'\""))
    }  # fmt: skip


def literal_axes(trees: Trees, source: Path = SOURCE) -> list[str]:
    """Tuples and lists of three or more axes of parallelism written out, where the one declaration would do."""
    return [
        f"{path.relative_to(source).as_posix()}: {', '.join(words)}"
        for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Tuple | ast.List)
        if all(isinstance(each, ast.Constant) for each in node.elts)
        if len(words := [str(each.value) for each in node.elts if isinstance(each, ast.Constant)]) >= 3
        and set(words) <= AXIS_NAMES and len({*words} & {"tp", "pp", "cp", "ep", "dp"}) >= 3
    ]  # fmt: skip


def printing_verbs(source: Path = SOURCE) -> list[str]:
    """Verbs, MODULE: NAME, that print to stdout by themselves or import more than the one renderer of answers."""
    found = []
    for path in sorted((source / "show" / "cli").glob("[a-z]*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_output"):
                found += [f"{path.stem}: {each.name}" for each in node.names if each.name not in RENDERERS]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                to = [ast.unparse(each.value) for each in node.keywords if each.arg == "file"]
                found += [f"{path.stem}: print"] if to != ["sys.stderr"] else []
    return found


def types_answer_by_hand(trees: Trees, source: Path = SOURCE) -> list[str]:
    """Functions of what is shown (cli, page, notebook) that return `dict[str, Any]`: answers written key by key. Not
    counted: `data` of a typed answer, and functions in ENCODED, whose dicts are documents of JSON Schema or of JSON
    that was decoded."""
    return [
        f"{path.stem}.{node.name}"
        for path, tree in trees.items() if path.relative_to(source).parts[0] in SHOWS
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.returns and "dict[str, Any]" in ast.unparse(node.returns)
        if node.name != "data" and (path.stem, node.name) not in ENCODED
    ]  # fmt: skip


def programs(source: Path = SOURCE) -> int:
    """Files of the catalog that describe a training program."""
    return len(_program_files(source))


def _program_files(source: Path) -> list[Path]:
    return sorted((source / "catalog" / "programs").glob("*.toml"))


def settings_single_use(source: Path = SOURCE) -> list[str]:
    """Settings, TABLE.NAME, that one program alone states: in its file, in its releases or in its fitted numbers."""
    table = source / "catalog" / "fitted.toml"
    fitted = tomllib.loads(table.read_text(encoding="utf-8")) if table.is_file() else {}
    named = [(path.stem, name) for path in _program_files(source) for name in _settings_of(path)]
    by_name = {name.partition(".")[2]: name for _, name in named}
    named += [(name.partition("@")[0], by_name.get(each, each)) for name, stated in fitted.items() for each in stated
              if not each.startswith("fitted_")]  # fmt: skip
    counts = Counter(name for _, name in set(named))
    return sorted(name for name, count in counts.items() if count == 1)


def _settings_of(path: Path) -> set[str]:
    stated = tomllib.loads(path.read_text(encoding="utf-8"))
    every = [stated, *stated.pop("releases", {}).values()]
    return {
        f"{table}.{name}"
        for each in every for table, settings in each.items() if isinstance(settings, dict) for name in settings
    }  # fmt: skip


def _words(tree: ast.AST) -> Iterator[str]:
    """Names that a module uses, binds or passes, and its strings as they stand; no comment."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)):
                yield text


def files_naming(trees: Trees, name: str) -> int:
    """Modules that have a name, or a string, which is exactly this word."""
    return sum(any(word == name for word in _words(tree)) for tree in trees.values())


def files_per_plan_column(source: Path = SOURCE) -> list[str]:
    """Files of what is shown, .py and .js, that know a plan's ranking and have a function which writes out its columns:
    each needs a line for a further column."""
    rooms = [source / room for room in SHOWS if (source / room).exists()]
    files = [path for room in rooms for path in ([room] if room.is_file() else sorted(room.rglob("*.*")))]
    return [path.relative_to(source).as_posix() for path in files
            if path.suffix in (".py", ".js") and _lays_out_a_plan(path)]  # fmt: skip


def _lays_out_a_plan(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return bool(RANKING.search(text)) and any(words >= COLUMNS_OF_A_PLAN for words in _functions(text, path.suffix))


def _functions(text: str, suffix: str) -> Iterator[set[str]]:
    """The words of each function."""
    if suffix == ".js":
        parts = re.split(r"\n(?:export )?(?:async )?function ", text)
        yield from (set(re.findall(r"\w+", part)) for part in parts)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            yield set(_words(node))


def words_of(*paths: Path) -> int:
    """Words between blanks."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


def kernel_laws_gap_max() -> float:
    """The same bf16 GEMMs on one H200, priced as `plan` does (cost.gpu) and as `trace` does: the largest gap over the
    latter."""
    from shardwise.cost.gpu import curve_of, gemm_seconds
    from shardwise.cost.network import network_of
    from shardwise.run.trace.events import Product
    from shardwise.run.trace.price import KernelPrices
    from shardwise.spec.load import cluster_of
    from shardwise.spec.software import stack_of

    cluster, stack = cluster_of("1xh200"), stack_of("torch-eager")
    curve = curve_of(cluster.gpu)
    prices = KernelPrices(cluster, stack, curve, network_of(cluster), tf32=False)
    gaps = []
    for m, n, k in SHAPES:
        product = Product(m, n, k, 1, "bf16", (float(k), float(n), float(n)))
        event: Any = SimpleNamespace(work=product, compiled=False)
        traced = prices.of(event) - stack.host.gap_s_per_op
        planned = float(gemm_seconds(curve, m, n, k, "bf16")) / stack.kernels.kernel_efficiency
        gaps.append(abs(planned / traced - 1.0))
    return round(max(gaps), 4)


def sizes() -> dict[str, int | float]:
    """All of it, by the names that `house.py --json` prints; nothing found where something must be is an error."""
    trees, lines = trees_of(), lines_by_package()
    found: dict[str, int | float] = {
        "lines_src": sum(lines.values()),
        "lines_core": sum(count for package, count in lines.items() if package not in NEEDS_TORCH),
        "packages_top": packages_top(),
        "verbs": verbs(),
        "types_message": len(types_message(trees)),
        "types_question": len(types_question(trees)),
        "types_answer_by_hand": len(types_answer_by_hand(trees)),
        "programs": programs(),
        "settings_single_use": len(settings_single_use()),
        "files_per_axis": files_naming(trees, AXIS),
        "files_per_plan_column": len(files_per_plan_column()),
        "docs_words": words_of(*(ROOT / "docs").glob("*.md")),
        "readme_words": words_of(ROOT / "README.md"),
    }
    empty = [name for name, value in found.items() if not value and name not in MAY_BE_NONE]
    if empty:
        raise LookupError(f"{', '.join(empty)}: nothing is counted; name here where it is now")
    return {**found, "kernel_laws_gap_max": kernel_laws_gap_max()}
