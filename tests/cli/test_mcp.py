"""Verbs as tools for agents: bounded in time, size and place, and the same over the real protocol."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise.programs.formats import formats
from shardwise.show.cli import main
from shardwise.show.cli._agent_tools import (
    LONGEST,
    TOOLS,
    AgentTool,
    ToolRequest,
    answered,
    asked_of,
    options_of,
    shortened,
    tools,
)
from shardwise.show.cli._frame import app
from shardwise.show.cli._verbs import VERBS
from shardwise.show.cli.mcp import NOT_INSTALLED, is_installed

PLAN, CHECK = (next(tool for tool in TOOLS if tool.called == name) for name in ("plan", "check"))
SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(autouse=True)
def own_source(monkeypatch):
    """Processes that are started run this source tree."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]))


def test_tools_are_verbs_that_are_there():
    assert {tool.verb for tool in tools()} == {tool.verb for tool in TOOLS} & set(VERBS)
    names = {tool.called for tool in tools()}
    assert {
        "plan",
        "estimate",
        "posttrain",
        "check",
        "why",
        "size",
        "export",
        "place",
        "doctor",
        "learn",
        "models",
        "clusters",
    } == names


EVERY_OPTION = [(tool, argument) for tool in tools() for argument in app[tool.verb].assemble_argument_collection()
                if argument.names and argument.names[0].startswith("--")]  # fmt: skip
BASE = {
    "posttrain": "llama-3.2-1b --on 2xh100 --prompts 2 --group 2 --lengths 20,40 --layout colocated",
    "plan": "gpt2 --on 4xv100 --top 1", "estimate": "gpt2 --on 4xv100", "size": "gpt2 --on 4xv100 --mfu 0.4",
    "check": "ds.json --model gpt2 --on 4xv100", "why": "steps.csv", "export": "gpt2 --on 4xv100 --to deepspeed",
    "place": "llama-3-8b --on dgx-h100:16 --tp 8 --topology topology.conf --budget 50",
    "learn": "run.log --model llama-3-8b --on 8xh100 --zero 3", "catalog": "models",
}  # fmt: skip
LOG = "".join(
    f" iteration {n:8}/      30 | consumed samples: {n * 64:8} | elapsed time per iteration (ms): 2000.0 | "
    "learning rate: 1E-5 | global batch size:    64 | lm loss: 7.1 | loss scale: 1.0 | grad norm: 2.1 |\n"
    for n in range(1, 31)
)
CHANGES = {
    ("check", "out"): "--fix --out new", ("check", "in-place"): "--fix --in-place --overwrite",
    ("check", "overwrite"): "--fix --in-place --overwrite",
    ("export", "out"): "--out new", ("place", "out"): "--out new",
    ("learn", "out"): "--out new.toml",
    ("plan", "learned"): "--measure 1 --measure-with 'touch {tp}' --learned new.toml",
}  # fmt: skip
"""options that write only with others"""


@pytest.fixture
def asked_about(tmp_path, monkeypatch):
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}')
    (tmp_path / "steps.csv").write_text("step,step_time\n" + "".join(f"{n},2.0\n" for n in range(30)))
    (tmp_path / "topology.conf").write_text("SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n")
    (tmp_path / "run.log").write_text(LOG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path.name: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("tool", tools(), ids=lambda tool: tool.called)
def test_every_option_an_agent_may_write_leaves_the_folder_as_it_is(tool, asked_about, capsys):
    before = contents(asked_about)
    for _, argument in (each for each in EVERY_OPTION if each[0] is tool):
        name = argument.names[0].removeprefix("--")
        if options_of(tool.verb)[name] or name == "json":
            continue
        for value in ([],) if argument.hint is bool else (["made"], ["1"]):
            code = main([tool.verb, *BASE[tool.verb].split(), f"--{name}", *value, "--json"])
            assert code in (0, 1, 2), (name, value)
            assert contents(asked_about) == before, (tool.verb, name, value)
    capsys.readouterr()


@pytest.mark.parametrize(("tool", "argument"), EVERY_OPTION, ids=lambda each: getattr(each, "called", None))
def test_options_that_write_or_run_are_refused(tool, argument, asked_about):
    """All but the `out` of those that say so."""
    name = argument.names[0].removeprefix("--")
    if options_of(tool.verb)[name] and name != tool.writes:
        with pytest.raises(ValueError, match=f"'{name}' is not for agents"):
            asked_of(tool, ["gpt2"], "", {name.replace("-", "_"): True}, asked_about)
    elif name != "json":
        asked_of(tool, ["gpt2"], "", {name: "1"}, asked_about)


@pytest.mark.parametrize(("verb", "name"), CHANGES)
def test_those_that_are_marked_do_write(verb, name, asked_about, capsys):
    """Otherwise the mark says nothing."""
    before = contents(asked_about)
    main(shlex.split(f"{verb} {BASE[verb]} {CHANGES[verb, name]} --json"))
    capsys.readouterr()
    assert contents(asked_about) != before
    assert options_of(verb)[name]


def test_a_change_is_shown_and_not_written(asked_about):
    before = contents(asked_about)
    found = answered(asked_of(CHECK, ["ds.json"], "4xv100", {"model": "gpt2", "fix": True}, asked_about), asked_about)
    assert found["answer"]["fix"]["diff"].startswith("--- ")
    assert contents(asked_about) == before


def test_a_link_in_the_folder_is_not_written_through(asked_about):
    (asked_about / "root" / "launch").mkdir(parents=True)
    outside = asked_about / "outside"
    export = next(tool for tool in tools() if tool.verb == "export")
    asked = asked_of(export, ["gpt2"], "4xv100", {"to": "deepspeed", "out": "launch"}, asked_about / "root")
    names = answered(asked_of(export, ["gpt2"], "4xv100", {"to": "deepspeed"}, asked_about), asked_about)["answer"][
        "files"
    ]
    for name in names:
        (asked_about / "root" / "launch" / name).symlink_to(outside)
    with pytest.raises(ValueError, match="is there already"):
        answered(asked, asked_about / "root")
    assert not outside.exists()


def test_a_command_line_is_made_of_names(tmp_path):
    asked = asked_of(PLAN, ["llama-3-8b"], "8xh100", {"top": 3, "fix": ["tp=8", "pp=1"], "why": True}, tmp_path)
    assert asked.command == "shardwise plan llama-3-8b --on 8xh100 --top 3 --fix tp=8 --fix pp=1 --why --json"
    for model in ("Qwen/Qwen2.5-72B", "config.json", "folder/config.json"):
        asked_of(PLAN, [model], "2x8xa100@100Gbps/node", {}, tmp_path)


@pytest.mark.parametrize("path", ["../x.json", "/etc/passwd", "~/x.json", "a/../../x", "link", "link/x", "loop/x"])
def test_files_stay_in_the_folder(tmp_path, path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    for asks in (
        lambda: asked_of(PLAN, [path], "8xh100", {}, root), lambda: asked_of(CHECK, ["a", path], "", {}, root),
        lambda: asked_of(PLAN, ["gpt2"], path, {}, root),
        lambda: asked_of(PLAN, ["gpt2"], "x", {"profile": path}, root),
        lambda: asked_of(PLAN, ["gpt2"], "x", {"sync": f"psgd,data={path}"}, root),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="is outside of 'root'"):
            asks()


@pytest.mark.parametrize(("options", "told"), [
    ({"overwrite": True}, "'overwrite' is not an option of plan"), ({"measure": 1}, "'measure' is not for agents"),
    ({"csv": "a.csv"}, "'csv' is not an option of plan"), ({"--json": True}, "'json' is not for agents"),
    ({"a b": 1}, "is not the name of an option"), ({"fix": "--out"}, "begins like an option"),
    ({"fix": "x" * 5000}, "too long"), ({"fix": "a\nb"}, "no plain text"),
    ({str(i): 1 for i in range(99)}, "at most 60"),
])  # fmt: skip
def test_odd_options_are_refused(tmp_path, options, told):
    with pytest.raises(ValueError, match=told):
        asked_of(PLAN, ["gpt2"], "8xh100", options, tmp_path)


def test_answers_are_short_and_keep_what_they_rest_on():
    long = {
        "best": [{"x": "y" * 900}] * 50, "tier": "closed form", "error_basis": "280 runs", "big": {"a": "b" * 3900},
        "more": {str(i): "c" * 3900 for i in range(9)}, "notes": ["assumed"], "recommended": {"step_s": 1.0},
    }  # fmt: skip
    found = shortened(ToolRequest(PLAN, ("plan",)), long, 0)
    assert len(json.dumps(found, indent=2)) <= PLAN.longest < LONGEST
    assert found["answer"]["tier"] == "closed form"
    assert {"error_basis", "notes", "recommended"} <= set(found["answer"])
    assert found["answer"]["best"][-1] == "... 47 more"
    assert found["left_out"] == ["big", "more"]


def test_an_answer_that_takes_too_long_ends(tmp_path):
    asked = ToolRequest(AgentTool("plan", "model", ""), ("plan", "llama-3-70b", "--on", "dgx-h100:1024", "--json"))
    with pytest.raises(ValueError, match=r"plan: no answer in 0\.05 s"):
        answered(asked, tmp_path, 0.05)


def test_a_refusal_is_the_verbs_own_line(tmp_path):
    with pytest.raises(ValueError, match=r"error: gpu 'h1000' is unknown; did you mean 'h100'\?"):
        answered(asked_of(PLAN, ["gpt2"], "8xh1000", {}, tmp_path), tmp_path)


def test_the_verb_lists_its_tools(capsys):
    assert main(["mcp", "--list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["tools"]] == [tool.called for tool in tools()]
    assert main(["mcp", "--root", "nowhere"]) == 2
    assert "root: there is no folder 'nowhere'" in capsys.readouterr().err


def test_without_the_package_it_says_what_to_install():
    code = "import sys; sys.modules['mcp'] = None\nfrom shardwise.show.cli import main\nraise SystemExit(main(['mcp']))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert found.returncode == 2
    assert "pip install 'shardwise[mcp]'" in found.stderr


def test_the_real_client_gets_answers(tmp_path):
    """Over stdin and stdout, with the package's own client."""
    if not is_installed():
        pytest.skip(NOT_INSTALLED)
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    (tmp_path / "train.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ds.json\n")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}')
    (tmp_path / "steps.csv").write_text("step,step_time\n" + "".join(f"{n},2.0\n" for n in range(30)))
    (tmp_path / "topology.conf").write_text("SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n")
    (tmp_path / "run.log").write_text(LOG)
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "rank3.log").write_text(
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    words = ["-m", "shardwise", "mcp", "--root", str(tmp_path)]
    started = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    fsdp = {"model": "llama-3-8b", "on": "8xh100", "options": {"zero": 3}}

    async def talk():
        async with Client(started) as client:
            listed = (await client.list_tools()).tools
            names = [tool.name for tool in listed]
            good = {
                "plan": {"model": "gpt2", "on": "4xv100"}, "estimate": fsdp,
                "size": {"model": "gpt2", "on": "4xv100", "options": {"mfu": 0.4}},
                "check": {"files": ["ds.json"], "on": "8xh100", "options": {"model": "llama-3-8b"}},
                "export": {**fsdp, "options": {"zero": 3, "to": "torchtitan", "out": "launch"}},
                "why": {"files": ["steps.csv"], "on": "8xh100", "options": {"model": "llama-3-8b", "zero": 3}},
                "place": {"model": "llama-3-8b", "on": "dgx-h100:16",
                          "options": {"tp": 8, "topology": "topology.conf", "budget": 50}},
                "doctor": {"files": ["failed"]}, "models": {}, "clusters": {},
                "posttrain": {"model": "qwen3-8b", "on": "8xh100", "options": {"algorithm": "grpo", "lag": 0}},
                "learn": {"files": ["run.log"], "on": "8xh100",
                          "options": {"model": "llama-3-8b", "zero": 3, "out": "mine.toml"}},
            }  # fmt: skip
            answers = {name: await client.call_tool(name, words) for name, words in good.items()}
            bad = [
                await client.call_tool("estimate", {**fsdp, "model": model}) for model in ("/etc/x.json", "no-model")
            ]
            bad.append(await client.call_tool("plan", {"model": "gpt2", "on": "4xv100", "seq": 512}))
            return listed, names, answers, bad

    listed, names, answers, bad = asyncio.run(talk())
    assert names == [tool.called for tool in tools()]
    for tool, shown in zip(tools(), listed, strict=True):
        assert shown.input_schema["additionalProperties"] is False
        if tool.asks != "nothing":
            options = set(shown.input_schema["properties"]["options"]["properties"])
            acts = options_of(tool.verb)
            allowed = {name for name in acts if name not in ("json", "on") and (not acts[name] or name == tool.writes)}
            assert {name.replace("_", "-") for name in options} <= allowed
            arguments = app[tool.verb].assemble_argument_collection()
            stated = [{name.removeprefix("--") for name in each.names} for each in arguments]
            assert all(names & {name.replace("_", "-") for name in options} for names in stated if names & allowed)
    assert len(answers["plan"].content[0].text) <= 6_000
    assert answers["plan"].structured_content["answer"]["recommended"]["policy"]
    assert "llama-3-8b 8" in str(answers["models"].structured_content["answer"]["models"])
    for name, answer in answers.items():
        assert not answer.is_error, (name, answer.content)
        assert answer.structured_content["exit_code"] in (0, 1)
        verb = {"doctor": "why", "models": "catalog models", "clusters": "catalog clusters"}.get(name, name)
        assert answer.structured_content["command"].startswith(f"shardwise {verb} ")
    assert answers["estimate"].structured_content["answer"]["error_range"]
    assert set(answers) == {tool.called for tool in tools()}
    assert (tmp_path / "mine.toml").is_file()
    assert answers["why"].structured_content["answer"]["logs"][0]["step_s"] == 2.0
    assert (tmp_path / "launch" / "train.sh").is_file()
    assert all(answer.is_error for answer in bad)
    assert all("\n" not in answer.content[0].text for answer in bad[:2])
    assert "seq" in bad[2].content[0].text


@pytest.mark.slow
def test_an_agent_with_the_page_alone_plans_exports_and_checks(tmp_path):
    """The order of SKILL.md: look up, plan, take `recommended`, export to every target, check what was written."""
    if not is_installed():
        pytest.skip(NOT_INSTALLED)
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    words = ["-m", "shardwise", "mcp", "--root", str(tmp_path)]
    started = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    case = {"model": "llama-3-8b", "on": "8xh100"}

    async def talk():
        async with Client(started) as client:
            known = (await client.call_tool("models", {})).structured_content["answer"]["models"]
            assert any(row.startswith("llama-3-8b ") for row in known)
            plan = (await client.call_tool("plan", case)).structured_content["answer"]
            assert plan["recommended"]["step_s"] > 0
            left = {}
            for target in formats():
                options = {"to": target, "out": target}
                written = await client.call_tool("export", {**case, "options": options})
                assert not written.is_error, (target, written.content[0].text)
                checked = await client.call_tool("check", {
                    "files": [f"{target}/{name}" for name in written.structured_content["answer"]["launched"]],
                    "on": "8xh100", "options": {"model": "llama-3-8b", "target": target},
                })  # fmt: skip
                left[target] = checked.is_error and checked.content[0].text
            return left

    left = asyncio.run(talk())
    assert left == dict.fromkeys(formats(), False)
