"""Python blocks of the pages run as they stand, those of one page after one another in one namespace."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
NEEDS_YOURS = ("docs/auto.md", "docs/sync.md", "docs/trace.md", "docs/watch.md")
"""pages whose blocks take a training program of the reader's: their syntax and imports are tested"""
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if BLOCK.search(page.read_text())]


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_are_python_and_their_names_exist(page):
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shardwise"):
                module = __import__(node.module, fromlist=[alias.name for alias in node.names])
                assert all(hasattr(module, alias.name) for alias in node.names), node.module


@pytest.mark.parametrize("page", [page for page in PAGES if str(page.relative_to(ROOT)) not in NEEDS_YOURS],
                         ids=lambda page: page.name)  # fmt: skip
def test_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)
    if page.name == "python.md":
        assert len(blocks(page)) == 10
        assert len(capsys.readouterr().out.splitlines()) >= 20
