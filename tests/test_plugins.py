"""Adding a thing is adding one file: a sample of each kind, alone in its folder, is found, used and checked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.checks import CHECKS

TESTS = Path(__file__).resolve().parent
SAMPLES = {kind: TESTS / "plugins" / kind for kind in CHECKS}
ENROLLED = ("gpu", "fabric", "schedule", "collective", "compressor", "topology", "optimizer")
"""kinds whose conformance tests need nothing but the plug-in"""


def python(words: list[str], path: str) -> subprocess.CompletedProcess[str]:
    source = f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"
    environment = {**os.environ, "SHARDWISE_PLUGINS": path, "PYTHONPATH": source}
    return subprocess.run([sys.executable, *words], cwd=TESTS.parent, env=environment, capture_output=True, text=True)


def checked(path: str) -> dict[str, str]:
    ended = python([str(TESTS / "plugins" / "checks.py")], path)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def with_samples() -> dict[str, str]:
    return checked(os.pathsep.join(map(str, SAMPLES.values())))


@pytest.mark.parametrize("kind", CHECKS)
def test_one_file_is_found_and_used(kind, with_samples):
    files = [path for path in SAMPLES[kind].rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) == 1
    assert with_samples[kind] == ""


def test_without_its_file_each_is_missed():
    missed = checked("")
    assert missed.keys() == CHECKS.keys()
    assert all(missed.values()), missed


def test_the_conformance_tests_enrol_it():
    names = {kind: f"test_{kind[:-1]}ies.py" if kind.endswith("y") else f"test_{kind}s.py" for kind in ENROLLED}
    files = [f"tests/conformance/{name}" for name in names.values()]
    path = os.pathsep.join(str(SAMPLES[kind]) for kind in ENROLLED)
    ended = python(["-m", "pytest", "-p", "no:cacheprovider", "-vv", "-k", "sample_ or sample-", *files], path)
    assert ended.returncode == 0, ended.stdout
    for name in names.values():
        assert f"conformance/{name}::" in ended.stdout


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("catalog/gpus/h100.toml", "catalog/gpus has 'h100' twice; give your file another name"),
        ("schedules/gpipe.py", "schedules has 'gpipe' twice; give your file another name"),
    ],
)
def test_a_name_that_is_taken_is_refused(file, message, tmp_path):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("")
    ended = python(["-m", "shardwise", "estimate", "llama-3-8b", "--on", "8xh100"], str(tmp_path))
    assert (ended.returncode, ended.stderr.strip()) == (2, f"error: SHARDWISE_PLUGINS: {message}")


def test_a_search_path_that_is_no_folder_is_refused(tmp_path):
    ended = python(["-m", "shardwise", "gpus"], str(tmp_path / "nowhere"))
    assert ended.returncode == 2
    assert "is not a folder; write one that holds" in ended.stderr
