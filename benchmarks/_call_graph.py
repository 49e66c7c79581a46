"""Which functions of a source tree lead to which, by reading it: names as imports and definitions bind them.

Calls through an object (`case.report()`) are not followed: what an object is, reading does not tell.
"""

import ast
from functools import cache
from pathlib import Path

Graph = dict[str, set[str]]


def modules_of(source: Path) -> dict[str, ast.Module]:
    """Dotted name -> syntax tree, of a package's folder."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _bound(tree: ast.Module) -> dict[str, str]:
    """Every name that an import anywhere in the module binds -> what it stands for, dotted."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return names


def calls_of(trees: dict[str, ast.Module]) -> Graph:
    """Function or class, dotted -> those it calls or names; what a module does when imported counts for none."""
    bound = {module: _bound(tree) for module, tree in trees.items()}
    defined = {
        f"{module}.{node.name}": (module, node)
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }

    @cache
    def meant(dotted: str) -> str:
        """Past re-exports, to where it is defined."""
        module, _, name = dotted.rpartition(".")
        further = bound.get(module, {}).get(name, dotted)
        # a package that imports a module of its own binds the name to itself
        return dotted if dotted in defined or further == dotted else meant(further)

    def named(module: str, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            dotted = bound[module].get(node.id, f"{module}.{node.id}")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound[module]:
            dotted = f"{bound[module][node.value.id]}.{node.attr}"
        else:
            return None
        found = meant(dotted)
        return found if found in defined else None

    return {
        dotted: {found for inner in ast.walk(node) if (found := named(module, inner)) and found != dotted}
        for dotted, (module, node) in defined.items()
    }


def way(graph: Graph, starts: set[str], ends: set[str]) -> list[str]:
    """The shortest chain from one of the first to one of the last, both in it; empty where there is none."""
    came_from: dict[str, str] = dict.fromkeys(starts, "")
    edge = sorted(starts)
    while edge:
        for here in edge:
            if here in ends:
                chain = [here]
                while came_from[chain[-1]]:
                    chain.append(came_from[chain[-1]])
                return chain[::-1]
        following = []
        for here in edge:
            for there in sorted(graph[here]):
                if there not in came_from:
                    came_from[there] = here
                    following.append(there)
        edge = following
    return []
