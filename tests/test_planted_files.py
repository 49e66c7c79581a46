"""Nothing runs from the folder shardwise is started in or asked about, whatever its files are called."""

import ast
import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

from asked import ROOT
from planted import INSTALLED, RUNS_SCRIPTS, commands, every_name, made, plant, python_m, ran
from shardwise.interpreter import python_command, python_environment
from shardwise.plugins.engines import Setup, engine_of, run
from shardwise.show.cli._agent_tools import answered, asked_of, tools
from shardwise.show.cli._verbs import BESIDE, VERBS
from shardwise.show.cli.serve import worker_command
from shardwise.show.page.workers import Asked, Pool
from shardwise_lab.probe import allowed

SOURCE = ROOT / "src" / "shardwise"
LAB = Path(__file__).resolve().parents[1] / "lab" / "src"
TORCH = (*RUNS_SCRIPTS, "run", "verify", "checkpoints")
COMMANDS = commands()
ASKED_OF_TOOLS = {
    "plan": (["gpt2"], "4xv100", {"top": 1}), "estimate": (["llama-3-8b"], "8xh100", {"zero": 3}),
    "size": (["gpt2"], "4xv100", {"mfu": 0.4}), "check": (["ds.json"], "8xh100", {"model": "llama-3-8b"}),
    "why": (["megatron-run.log"], "", {}), "export": (["llama-3-8b"], "8xh100", {"zero": 3, "to": "torchtitan"}),
    "place": (["llama-3-8b"], "dgx-h100:64", {"tp": 8, "topology": "site-topology.conf", "budget": 100}),
    "posttrain": (["llama-3.1-8b"], "8xh100", {"prompts": 32, "group": 8, "lengths": "600,2048"}),
    "doctor": (["megatron-run.log"], "", {}), "models": ([], "", {}), "clusters": ([], "", {}),
    "learn": (["olmo-run.log"], "8xh100", {"model": "llama-3-8b", "zero": 3, "out": "by-agent.toml"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("planted"))


@pytest.fixture(autouse=True)
def own_source(monkeypatch, folder):
    """Processes that are started run this source tree."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.chdir(folder)


def answer(command, folder, **variables):
    """Whole, so that nothing planted broke it either."""
    found = python_m(command, folder, **variables)
    assert ran(folder) == [], (command, found.stderr)
    assert found.returncode in (0, 1), (command, found.stderr)
    return json.loads(found.stdout)


def test_planted_files_do_run_where_python_lets_them(tmp_path):
    """Otherwise the others would show nothing."""
    plant(tmp_path, {"numpy"})
    subprocess.run([sys.executable, "-c", "import numpy"], cwd=tmp_path, capture_output=True)
    assert ran(tmp_path) == ["ran-numpy"]


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in TORCH])
def test_no_verb_runs_them(verb, folder):
    assert answer(COMMANDS[verb], folder)


def test_no_verb_with_torch_runs_them(folder):
    """Ranks are forks of it."""
    pytest.importorskip("torch", reason="torch is not installed")
    for verb in TORCH:
        assert answer(COMMANDS[verb], folder), verb


def test_an_empty_entry_of_the_import_path_is_not_followed(tmp_path):
    """As `PYTHONPATH=a:$PYTHONPATH` leaves one. Python's own start would read some names before shardwise can."""
    (tmp_path / "ds.json").write_bytes((Path.cwd() / "ds.json").read_bytes())
    plant(tmp_path, {*INSTALLED, "json", "queue", "random", "tempfile"} - {"sitecustomize", "usercustomize"})
    assert answer(COMMANDS["check"], tmp_path, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}")


def test_ranks_that_begin_afresh_do_not_run_them(folder):
    """As those with a GPU do; without an order they end with shardwise's own line."""
    pytest.importorskip("torch", reason="torch is not installed")
    command = python_command("shardwise.run.runtime.train.rank")
    found = subprocess.run(command, cwd=folder, env=python_environment(), capture_output=True, text=True)
    assert ran(folder) == []
    assert "run/runtime/train/rank.py" in found.stderr


@pytest.mark.parametrize("train", ["ddp", pytest.param("tp=2,pp=2", marks=pytest.mark.slow)])
def test_ranks_of_a_lab_do_not_run_them(train, folder):
    pytest.importorskip("torch", reason="torch is not installed")
    if (found := allowed()).missing:
        pytest.skip(f"no lab here: {'; '.join(found.missing)}")
    assert answer(f"lab run --on star4 --train {train} --times 1 --json", folder)["run"]


@pytest.mark.slow
def test_chaos_in_a_lab_does_not_run_them(folder):
    pytest.importorskip("torch", reason="torch is not installed")
    if (found := allowed()).missing:
        pytest.skip(f"no lab here: {'; '.join(found.missing)}")
    assert answer("lab chaos kill-rank --json", folder)


def test_trials_of_a_plan_do_not_run_them(folder):
    pytest.importorskip("torch", reason="torch is not installed")
    words = "plan config.json --on 2xh100 --seq 16 --global-batch 4 --stack shardwise --top 1"
    found = answer(f"{words} --measure 1 --measure-device cpu --json", folder)
    assert [each["step_s"] > 0 for each in found["measure"]["trials"]] == [True]


@pytest.mark.parametrize("tool", tools(), ids=lambda tool: tool.called)
def test_no_tool_of_an_agent_runs_them(tool, folder):
    first, on, options = ASKED_OF_TOOLS[tool.called]
    found = answered(asked_of(tool, first, on, options, folder), folder)
    assert ran(folder) == []
    assert found["answer"]


def test_the_processes_behind_the_page_do_not_run_them(folder):
    async def whole():
        pool = Pool(worker_command(), 60.0, 1)
        await pool.open()
        try:
            return await pool.ask(Asked(["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--json"], {}))
        finally:
            await pool.close()

    found = asyncio.run(whole())
    assert ran(folder) == []
    assert found.code == 0, found.err


def test_the_page_is_served_past_them(folder, monkeypatch):
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        pytest.skip("starlette and uvicorn are not installed")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from _chromium import served

    with served() as address:
        page = urllib.request.urlopen(address, timeout=30).read()
    assert ran(folder) == []
    assert b"shardwise" in page


def doubled(shard: bytes) -> bytes:
    return shard * 2


def test_processes_of_a_long_study_do_not_run_them(folder):
    assert run(engine_of("local"), doubled, [b"a", b"b", b"c"], Setup(jobs=2)) == [b"aa", b"bb", b"cc"]
    assert ran(folder) == []


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_processes_of_a_cluster_engine_do_not_run_them(name, package, folder):
    pytest.importorskip(package, reason=f"{package} is not installed")
    assert answer(f"sweep gpt2 --on h100 --over gpus=8:16 --policy fsdp --engine {name} --json", folder)


def test_plug_ins_named_from_here_work_in_processes_started_elsewhere(tmp_path, monkeypatch):
    """And a folder of that name in the agents' folder is not taken for them."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for root, note in ((mine, "ours read"), (theirs, "theirs read")):
        folder = root / "plug" / "compressors"
        folder.mkdir(parents=True)
        (folder / "ours.py").write_text(f"open({str(tmp_path / note)!r}, 'w').close()\nraise ValueError('{note}')\n")
    monkeypatch.chdir(mine)
    monkeypatch.setenv("SHARDWISE_PLUGINS", "plug")
    asked = asked_of(tools()[0], ["gpt2"], "4xv100", {"sync": "mem_sgd,compressor=ours", "top": 1}, theirs)
    with pytest.raises(ValueError, match="ours read"):
        answered(asked, theirs)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["ours read"]


def test_a_source_tree_run_from_inside_finds_itself(tmp_path):
    """`python -m shardwise` in `src`: its helpers are of the same tree."""
    (tmp_path / "shardwise").symlink_to(SOURCE)
    assert answer("sweep gpt2 --on h100 --over gpus=8:16 --policy fsdp --jobs 2 --json", tmp_path, PYTHONPATH="")


def _starts_python(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
            found.append("sys.executable")
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            root, names = node.module.split(".")[0], {alias.name for alias in node.names}
            if root == "sys" and "executable" in names:
                found.append("sys.executable")
            if root in ("multiprocessing", "concurrent") or node.module.startswith("torch.multiprocessing"):
                found += [f"{node.module}.{name}" for name in names]
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
            found += [name for name in names if name.split(".")[0] in ("multiprocessing", "concurrent")]
        elif isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant):
            word = node.elts[0].value
            found += [f"[{word!r}, ...]"] if isinstance(word, str) and word.startswith(("python", "torchrun")) else []
    return found


STARTS = {
    "interpreter.py": {"sys.executable"},
    "plugins/engines/_workers.py": {"multiprocessing.get_context", "multiprocessing.resource_tracker",
                            "multiprocessing.connection.Connection", "multiprocessing.connection.wait",
                            "multiprocessing.context.SpawnProcess"},
    "show/cli/_interrupts.py": {"multiprocessing.active_children"},
    "shardwise_lab/ranks/__main__.py": {"multiprocessing.Lock"},
    "run/runtime/checkpoints/save.py": {"concurrent.futures.Future"},
    "run/runtime/share_gpu.py": {"sys.executable"},
    "run/trace/pretend.py": {"torch.multiprocessing.spawn.spawn"},
}  # fmt: skip
"""the one module that starts Python, the one whose spawned processes it makes safe, the one that starts the user's own
script as it stands, and what starts nothing"""


def test_one_module_alone_starts_python():
    found = {}
    for root in (SOURCE, LAB):
        for path in sorted(root.rglob("*.py")):
            if names := set(_starts_python(ast.parse(path.read_text(encoding="utf-8")))):
                found[str(path.relative_to(root))] = names
    assert found == STARTS


def test_that_rule_sees_a_new_one():
    for text in ("import sys\nPopen([sys.executable, '-m', 'x'])", "from sys import executable",
                 "from multiprocessing import Pool", "run(['python3', 'x.py'])",
                 "from concurrent.futures import ProcessPoolExecutor"):  # fmt: skip
        assert _starts_python(ast.parse(text)), text


def test_every_verb_and_tool_is_tried():
    assert set(COMMANDS) - {"prove"} == {*VERBS, *BESIDE}
    assert set(ASKED_OF_TOOLS) == {tool.called for tool in tools()}
    assert {"numpy", "msgspec", "yaml", "json", "torch", "starlette", "queue", "random"} <= every_name()
