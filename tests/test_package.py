"""The wheel as a user gets it: built from the source distribution, installed without torch, used from any folder."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("package")  # they share what a fixture of theirs computes

ROOT = Path(__file__).resolve().parents[1]


def ran(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHARDWISE"))}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=kept, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(source distribution, wheel built from it)"""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    done = ran(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (source,) = out.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(out, filter="data")
    (unpacked,) = (path for path in out.iterdir() if path.is_dir())
    done = ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=unpacked)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def lab_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("lab")
    done = ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=ROOT / "lab")
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def test_each_wheel_has_every_file_of_its_package_and_nothing_else(built, lab_wheel):
    holds_all_of("src/shardwise", built[1])
    holds_all_of("lab/src/shardwise_lab", lab_wheel)


def holds_all_of(package: str, wheel: Path) -> None:
    folder, _, name = package.rpartition("/")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    tracked = ran("git", "ls-files", package, cwd=ROOT)
    if tracked.returncode:
        pytest.skip("not a git checkout: cannot tell which files are the package's")
    wanted = {name.removeprefix(f"{folder}/") for name in tracked.stdout.split() if (ROOT / name).exists()}
    assert wanted - names == set()
    assert {path for path in names if not path.startswith(f"{name}/")} == set()


def test_the_source_distribution_is_small_and_has_the_licence(built):
    source, _ = built
    assert source.stat().st_size < 8 * 2**20
    with tarfile.open(source) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


def test_it_installs_without_torch_and_answers_from_any_folder(built, lab_wheel, tmp_path):
    _, wheel = built
    python = tmp_path / "env" / "bin" / "python"
    assert ran(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path).returncode == 0
    done = ran(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel, cwd=tmp_path)
    if done.returncode:
        pytest.skip(f"the wheel's dependencies cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    assert ran(python, "-c", "import torch", cwd=tmp_path).returncode != 0
    found = ran(python.with_name("shardwise"), "plan", "llama-3-8b", "--on", "8xh100", "--top", "1", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "take" in found.stdout
    found = ran(python.with_name("shardwise"), "run", "llama-3-8b", "--on", "8xh100", cwd=tmp_path)
    assert found.returncode == 2
    assert "torch" in found.stderr
    found = ran(python.with_name("shardwise"), "lab", "list", cwd=tmp_path)
    assert found.returncode == 2
    assert "pip install" in found.stderr
    done = ran(
        python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", lab_wheel, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = ran(python.with_name("shardwise"), "lab", "list", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "two-leaves" in found.stdout
