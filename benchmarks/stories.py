"""Do the commands of one person, asked one after another, agree? Goals of real users, each with six or more commands.

    python benchmarks/stories.py [--json] [--only NAME]

A story is a model, a cluster and a job. Its commands: `plan`; the command that plan prints; `estimate` of the policy
to take, and without one; `simulate`; `export` and `check` of the file written; `operate` or `size` for a whole run; and
the Python twins of plan and estimate. A contradiction is a number that two of them give differently, a policy to take
that a listed one beats in time and risk, an offload that the host does not hold, or a follow-up that does not run.
`lines_plan` is the longest default output of `plan` at 80 columns, `assumed_shown` the stories in which plan and
estimate name the same assumptions that move the step by more than 5 %.
"""

import argparse
import contextlib
import io
import json
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardwise import estimate_of, plan_of
from shardwise.show.cli import main as shardwise
from shardwise.spec.arch import model_names, model_of
from shardwise.spec.arch.tensors import parameters

CLOSE = 1e-6
SIMULATED = 0.25
"""by which a simulated step may differ from the closed form before it counts as a contradiction"""
PUBLISHED = 0.03
"""by which a count of parameters may differ from a published one: towers and rounding"""


@dataclass(frozen=True)
class Story:
    name: str
    model: str
    on: str
    job: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    """of export and check; empty: the program has none"""
    run: str = ""
    """`operate` or `size`, of a whole run"""


STORIES = (
    Story("pretraining on 256 GPUs", "llama-3-70b", "dgx-h100:256", {"tokens": "1T"}, "megatron", "operate"),
    Story("a first run on one node", "llama-3-8b", "8xh100", {}, "megatron"),
    Story("the network people have", "llama-3-8b", "2x8xa100-40@100Gbps/node", {}, "megatron"),
    Story("the network the catalog has", "llama-3-8b", "2x8xa100-40", {}, "megatron"),
    Story("fine-tuning with TRL", "llama-3-8b", "2x8xa100-40@100Gbps/node", {
        "tune": "lora", "stack": "trl", "seq": 2048, "global_batch": 64,
    }, "trl"),
    Story("QLoRA of 70B on a node", "llama-3-70b", "8xh100", {"tune": "qlora", "stack": "trl", "seq": 2048}, "trl"),
    Story("a node too small but for its host", "llama-3-70b", "8xh100", {}, "megatron"),
    Story("experts", "mixtral-8x7b", "4x8xh100", {}, "megatron"),
    Story("a hundred GPUs", "llama-3-8b", "dgx-h100:104", {"global_batch": 520}, "megatron", "operate"),
    Story("long sequences", "llama-3.1-8b", "4x8xh100", {"seq": "128k", "global_batch": 32}, "megatron"),
    Story("FSDP with torchtitan", "llama-3-8b", "8x8xh100", {"stack": "torchtitan"}, "torchtitan"),
    Story("a new family", "qwen3.5-27b", "dgx-h100:64", {}),
    Story("buying for a deadline", "llama-3-8b", "dgx-h100:64", {"tokens": "100B"}, "megatron", "size"),
    Story("small and old", "gpt2", "8xv100", {"precision": "fp16", "seq": 1024}, "megatron"),
)  # fmt: skip


@dataclass
class Told:
    """What one story's commands answered."""

    story: Story
    commands: int = 0
    wrong: list[str] = field(default_factory=list)
    lines: int = 0
    dominated: int = 0
    assumed: bool = True

    def ask(self, words: list[str], *, json_too: bool = True) -> Any:
        self.commands += 1
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = shardwise([*words, *(["--json"] if json_too else [])])
        if code not in (0, 1):
            self.wrong.append(f"exit {code}: {shlex.join(words)}: {err.getvalue().strip()[:200]}")
            return {} if json_too else ""
        return json.loads(out.getvalue()) if json_too else out.getvalue()

    def same(self, what: str, one: float | None, other: float | None, within: float = CLOSE) -> None:
        if one is None or other is None or abs(one / other - 1) > within:
            self.wrong.append(f"{what}: {one} and {other}")


def flags(job: dict[str, Any]) -> list[str]:
    return [word for name, value in job.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def told_of(story: Story) -> Told:
    told = Told(story)
    asked = [story.model, "--on", story.on, *flags(story.job)]
    plan = told.ask(["plan", *asked])
    take = plan.get("recommended")
    if take is None:
        told.wrong.append("plan: nothing to take")
        return told
    _of_plan(told, plan, take)
    told.lines = len(told.ask(["plan", *asked], json_too=False).splitlines())
    follow = told.ask(shlex.split(plan["next"][0])[1:])
    usual = told.ask(["estimate", *asked])
    for what, answer in (("plan and its follow-up", follow), ("plan and estimate without a policy", usual)):
        told.same(f"{what}, step", take["step_s"], answer.get("step_s"))
        told.same(f"{what}, peak", take["peak_bytes"], answer.get("peak_bytes"))
    told.assumed = _assumed(plan) == _assumed(usual)
    simulated = told.ask(["simulate", *shlex.split(plan["next"][0])[2:]]) if "tune" not in story.job else None
    if simulated:
        told.same("simulated step", simulated.get("step_s"), take["step_s"], SIMULATED)
    if story.target:
        _of_file(told, plan)
    if story.run:
        _of_run(told, asked, take)
    _of_python(told, plan, usual)
    return told


def _of_plan(told: Told, plan: dict[str, Any], take: dict[str, Any]) -> None:
    """Nothing listed is faster and safer, its risk is what was accepted, its host holds what it offloads."""
    others = [*plan["best"], *(each for each in (plan["fastest"], plan["safest"]) if each)]
    beaten = [each for each in others if each["step_s"] < take["step_s"] and each["risk"] < take["risk"]]
    told.dominated += bool(beaten)
    if beaten:
        told.wrong.append(f"take is slower and riskier than {beaten[0]['policy']}")
    if take["risk"] > plan["risk"] and any(each["risk"] <= plan["risk"] for each in others):
        told.wrong.append(f"risk {take['risk']} where {plan['risk']} was accepted")
    if take["host_bytes"] > take["host_limit_bytes"]:
        told.wrong.append(f"offloads {take['host_bytes']} of {take['host_limit_bytes']} bytes")


def _assumed(answer: dict[str, Any]) -> set[str]:
    return {each["name"] for each in answer.get("assumed", [])} - {"even batch"}


def _of_file(told: Told, plan: dict[str, Any]) -> None:
    """The file that the policy is written to says the same, and check finds nothing that plan would not take."""
    story = told.story
    words = shlex.split(plan["next"][0])[2:]
    with tempfile.TemporaryDirectory() as folder:
        written = told.ask(["export", *words, "--to", story.target, "--out", folder])
        files = [str(Path(folder) / name) for name in written.get("launched", [])]
        if not files:
            return
        stated = flags({name: value for name, value in story.job.items() if name in ("stack", "precision")})
        found = told.ask(["check", *files, "--on", story.on, "--model", story.model, *stated])
    told.same("export and check, step", written.get("step_s"), found.get("step_s"), 1e-3)


def _of_run(told: Told, asked: list[str], take: dict[str, Any]) -> None:
    if told.story.run == "operate":
        run = told.ask(["operate", *asked])
        told.same("plan and operate, step", take["step_s"], run.get("step_s"))
        return
    size = told.ask(["size", *asked, "--within", "30 days"])
    point = next((each for each in size.get("sizes", []) if each.get("meets")), None)
    if point is None:
        told.wrong.append("size: no size meets the deadline")
        return
    batch = ["--global-batch", str(point["global_sequences"])]
    words = [word for word in asked if word not in ("--on", told.story.on)]
    run = told.ask(["operate", *words, "--on", point["cluster"], *batch])
    told.same("size and operate, step", point["step_s"], run.get("step_s"))


def _of_python(told: Told, plan: dict[str, Any], usual: dict[str, Any]) -> None:
    story = told.story
    told.commands += 2
    mine = plan_of(story.model, story.on, **story.job).data()
    told.same("plan and plan_of", mine["recommended"]["step_s"], plan["recommended"]["step_s"])
    if mine["recommended"]["policy"] != plan["recommended"]["policy"]:
        told.wrong.append("plan and plan_of take different policies")
    answer: Any = estimate_of(story.model, story.on, **story.job)
    told.same("estimate and estimate_of", answer.step_s, usual.get("step_s"))


def models_right() -> tuple[int, int]:
    """(models of the catalog, those whose count of parameters is the published one)."""
    names = model_names()
    close: Callable[[str], bool] = lambda name: (  # noqa: E731
        abs(parameters(model_of(name)) / model_of(name).published_params - 1) <= PUBLISHED
    )
    return len(names), sum(map(close, names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the last line alone")
    parser.add_argument("--only", default="", help="stories whose name has this text")
    given = parser.parse_args()
    found = []
    for story in STORIES:
        if given.only in story.name:
            told = told_of(story)
            found.append(told)
            if not given.json:
                print(f"{story.name:36} {told.commands:2} commands, plan {told.lines} lines", *told.wrong, sep="\n    ")
    models, right = models_right()
    print(json.dumps({
        "stories": len(found), "passed": sum(not each.wrong for each in found),
        "commands": sum(each.commands for each in found),
        "contradictions": sum(len(each.wrong) for each in found), "lines_plan": max(each.lines for each in found),
        "assumed_shown": sum(each.assumed for each in found), "dominated_taken": sum(each.dominated for each in found),
        "catalog_models": models, "parameters_right": right,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
