"""The project as a whole: versions, laws, public names, the README's examples."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import shardwise
from shardwise.show.cli import main
from shardwise.show.cli._verbs import ONLY_WORDS, VERBS

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 400
PLANNER = """
import shardwise
from shardwise import Job, Policies, Policy, cluster_of, model_of, report_of, stack_of
from shardwise.work.case import case_of
from shardwise.step.estimate.closed_form import estimate
model, cluster, job = model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=8192, global_batch=512)
estimate(case_of(model, cluster, job, stack_of("megatron-core")), Policies.of([Policy(dp=8)]))
report_of(case_of(model, cluster, job, stack_of("megatron-core")), Policy(dp=8))
"""
NO_TORCH = "import sys; assert 'torch' not in sys.modules, 'torch was imported'"
# Pieces, so that the rule does not find itself.
LEFT_TO_DO = re.compile("TO" + "DO|FIX" + "ME|XX" + "X")
MACHINE_PATH = re.compile(r"(?<![.\w])/" + r"(?:tmp|root|home|work|Users)/\w")


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "lab" / "src")]),
        "COLUMNS": "80",
    }


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)


def own_files() -> list[Path]:
    """What belongs to the project: tracked files, and new ones that git would not ignore."""
    git = shutil.which("git")
    command = [git or "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True) if git else None
    if listed is None or listed.returncode:
        pytest.skip("not a git checkout: nothing says which files belong to the project")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.name}:{number}: {line.strip()[:80]}")
    return found


def test_the_version_is_the_newest_in_the_changelog():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == stated


def test_the_planner_runs_without_torch():
    found = python(PLANNER + NO_TORCH)
    assert found.returncode == 0, found.stderr


def test_the_check_for_torch_can_fail():
    pytest.importorskip("torch", reason="torch is not installed: nothing can import it")
    found = python("import torch\n" + PLANNER + NO_TORCH)
    assert found.returncode == 1
    assert "torch was imported" in found.stderr


def test_imports_follow_the_law():
    tool = Path(sys.executable).parent / "lint-imports"
    if not tool.is_file():
        pytest.skip("import-linter is not installed beside this Python")
    found = subprocess.run([tool, "--no-cache"], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_public_names_are_sorted_and_there():
    assert shardwise.__all__ == sorted(shardwise.__all__)
    for name in shardwise.__all__:
        assert getattr(shardwise, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = shardwise.no_such_name


def test_import_is_lazy():
    found = python(
        "import time, sys; a = time.process_time(); import shardwise; b = time.process_time()\n"
        "assert 'numpy' not in sys.modules, 'numpy was imported'; print(b - a)"
    )
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < 0.1


def examples(*pages: Path) -> list[str]:
    """Commands of the console blocks that are marked `<!-- run -->`."""
    blocks = [b for p in pages for b in re.findall(r"<!-- run -->\n```console\n(.*?)```", p.read_text(), re.DOTALL)]
    return list(dict.fromkeys(line[2:] for b in blocks for line in b.splitlines() if line.startswith("$ ")))


README = examples(ROOT / "README.md")
PAGES = [command for command in examples(*sorted((ROOT / "docs").glob("*.md"))) if command not in README]
PLAIN = re.compile(r"shardwise ([^|&;$()]+?)(?: \| (.*))?")
"""one call, at most with filters behind it: what it prints can be had without a new process"""


@pytest.fixture(scope="session")
def path_with_shardwise(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which `shardwise` is this source tree's."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "shardwise"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shardwise "$@"\n')
    command.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("command", [*README, *(command for command in PAGES if not PLAIN.fullmatch(command))])
def test_examples_of_the_readme_run(command, path_with_shardwise):
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT, env={**environment(), "PATH": path_with_shardwise}, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()


@pytest.mark.parametrize("command", [command for command in PAGES if PLAIN.fullmatch(command)])
def test_examples_of_the_pages_run(command, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    asked = PLAIN.fullmatch(command)
    assert asked is not None
    assert main(shlex.split(asked[1])) == 0
    printed = capsys.readouterr().out
    if asked[2]:
        filters = ["bash", "-o", "pipefail", "-c", asked[2]]
        printed = subprocess.run(filters, input=printed, capture_output=True, text=True, check=True).stdout
    assert printed.strip()


def test_the_pages_have_examples_of_most_verbs():
    shown = {verb for verb in VERBS if any(f"shardwise {verb}" in command for command in [*README, *PAGES])}
    assert {"plan", "estimate"} <= shown
    assert len(shown) >= 12


def test_the_library_example_of_the_readme_runs():
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code
    for block in code:
        found = python(block)
        assert found.returncode == 0, found.stderr
        assert found.stdout.strip()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([verb, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--json" in printed or verb in ONLY_WORDS
    assert max(map(len, printed.splitlines())) <= 80


def test_every_verb_is_documented():
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [verb for verb in VERBS if f"## {verb}" not in text] == []


def test_links_between_documents_lead_somewhere():
    folders = ("docs", "evidence", "lab")
    pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))]
    links = [(p, target) for p in pages for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", p.read_text())]
    missing = [f"{p.name}: {link}" for p, link in links if "://" not in link and not (p.parent / link).exists()]
    assert missing == []


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by it."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []


def test_files_are_short():
    long = [
        p.name
        for p in (*(ROOT / "src").rglob("*.py"), *(ROOT / "lab").rglob("*.py"))
        if len(p.read_text().splitlines()) > MOST_LINES
    ]
    assert long == []


def test_nothing_is_left_to_do_and_no_path_of_a_machine():
    # but for recorded command lines of others, which keep their words
    files = [path for path in own_files() if path.suffix not in (".png", ".gz") and path.name != "scripts.jsonl"]
    assert lines_with(LEFT_TO_DO, files) == []
    assert lines_with(MACHINE_PATH, files) == []


def test_the_search_for_leftovers_can_find(tmp_path):
    page = tmp_path / "page.py"
    page.write_text("x = 1  # TO" + "DO later\nhome = '/ho" + "me/someone'\n")
    assert len(lines_with(LEFT_TO_DO, [page])) == 1
    assert len(lines_with(MACHINE_PATH, [page])) == 1
