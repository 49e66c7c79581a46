"""The lab's verb is there as lab/pyproject.toml states it, whether or not its distribution is installed."""

import sys
import tomllib
from pathlib import Path

import pytest

from shardwise.show.cli._installed import ENTRY_POINTS, installed_verbs

LAB = Path(__file__).resolve().parents[1] / "lab" / "pyproject.toml"


@pytest.fixture(autouse=True, scope="session")
def lab_verb(tmp_path_factory):
    project = tomllib.loads(LAB.read_text())["project"]
    root = tmp_path_factory.mktemp("installed")
    folder = root / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    points = "\n".join(f"{name} = {target}" for name, target in project["entry-points"][ENTRY_POINTS].items())
    (folder / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}\n")
    sys.path.append(str(root))
    installed_verbs.cache_clear()
    yield
    sys.path.remove(str(root))
    installed_verbs.cache_clear()
