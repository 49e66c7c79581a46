"""Asks what new users ask, by command line, in a fresh environment: twenty questions and five stories.

Then counts the families of transformers, where that is installed, that are read with the right number of parameters. An
answer counts when the exit code is right, it came without a traceback, and what it says holds: each has a check that
knows the answer from elsewhere (a published number, arithmetic, or another verb).

python benchmarks/first_minutes.py --json           # installs the package into a new environment first
python benchmarks/first_minutes.py --here --json    # with the environment that runs this
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _transformers_registry import counted

ROOT = Path(__file__).resolve().parents[1]
Answer = dict[str, Any]
Check = Callable[[Answer], bool]
LONGEST_S = 120


@dataclass(frozen=True)
class Question:
    name: str
    words: str
    """after `shardwise`, and before `--json`"""
    holds: Check
    code: int = 0


def near(value: float, wanted: float, share: float) -> bool:
    return abs(value / wanted - 1) <= share


def _recommended(answer: Answer) -> Answer:
    return dict(answer["recommended"])


def _gpus(policy: Answer) -> int:
    return int(policy["dp"] * policy["tp"] * policy["pp"] * policy["cp"])


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict | list):
        for inside in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inside)
    else:
        yield value


def _kinds(answer: Answer) -> dict[str, float]:
    return dict(answer["stages"][0]["kinds_bytes"])


def _steps(answer: Answer) -> list[float]:
    return [case["step_s"] for case in answer["cases"]]


def _peaks(answer: Answer) -> list[float]:
    return [case["peak_bytes"] for case in answer["cases"]]


LLAMA_8B, LLAMA_70B, LLAMA_405B = 8_030_261_248, 70_553_706_496, 405.85e9
"""parameters, as published"""

TWENTY = (
    Question("fits", "estimate llama-3-8b --on 8xh100 --tp 2 --seq 8k",
             lambda a: a["fits"] and a["seq_tokens"] == 8192),
    Question("does not fit", "estimate llama-3-70b --on 8xh100 --zero 0", lambda a: not a["fits"], 1),
    Question("what fills the memory: 2, 4 and 12 bytes of each parameter, over 8 ranks",
             "estimate llama-3-8b --on 8xh100 --zero 3",
             lambda a: all(near(_kinds(a)[kind], size * LLAMA_8B / 8, 0.01)
                           for kind, size in (("parameters", 2), ("gradients", 4), ("optimizer", 12)))),
    Question("how many GPUs: 6 FLOP x parameters x tokens at 35 to 60 % of the peak",
             "size llama-3-70b --on dgx-h100:512 --tokens 1T --within '30 d'",
             lambda a: 6 * LLAMA_70B * 1e12 / (30 * 86400 * 989e12) / 0.60 <= a["smallest_in_time"]
             <= 6 * LLAMA_70B * 1e12 / (30 * 86400 * 989e12) / 0.35),
    Question("which split: the product is the cluster", "plan llama-3-70b --on 8x8xh100",
             lambda a: _gpus(_recommended(a)["policy"]) == 64 and _recommended(a)["peak_bytes"] < 85.9e9),
    Question("what bandwidth", "sweep llama-3-8b --on 2x8xa100 --over network=10Gbps:400Gbps --global-batch 128",
             lambda a: 10 / 8 * 1e9 <= a["knee"]["value"] <= 400 / 8 * 1e9),
    Question("inside the node: less on the network, more memory",
             "compare llama-3-8b --on 4x8xh100 --policy zero=3 --policy zero=3,shard_group=8",
             lambda a: _peaks(a)[0] < _peaks(a)[1]),
    Question("MFU: 6 N tokens/s over the peak", "calc mfu llama-3-8b --tps 5966 --on h100",
             lambda a: near(a["conventions"]["6n_all"]["utilization"], 6 * LLAMA_8B * 5966 / 989.4e12, 0.01)),
    Question("uneven stages are never worse", "search stages llama-3-70b --on dgx-h100:64 --tp 8 --pp 8",
             lambda a: a["best"]["step_s"] <= a["even"]["step_s"] and sum(a["best"]["layers"]) == 80),
    Question("the bubble of 1F1B: (p - 1) / (m + p - 1), nearly",
             "simulate llama-3-8b --on 8xh100 --pp 8 --global-batch 32 --schedule 1f1b",
             lambda a: 0 < a["bubble_share"] < 7 / 39),
    Question("full recompute: a third more compute, less memory",
             "compare llama-3-8b --on 8xh100 --policy zero=3 --policy zero=3,recompute=full",
             lambda a: 1.2 < _steps(a)[1] / _steps(a)[0] < 1.4 and _peaks(a)[1] < _peaks(a)[0]),
    Question("why not tp 3", "estimate llama-3-8b --on 8xh100 --tp 3",
             lambda a: a["rule"] == "world" and a["cure"], 1),
    Question("a hot expert costs time",
             "estimate mixtral-8x7b --on 8x8xh100 --ep 8 --pp 4 --imbalance 1.5 --recompute full",
             lambda a: a["step_s"] > 0 and a["policy"]["ep"] == 8),
    Question("the longest sequence", "size --max sequence llama-3-8b --on 8xh100", lambda a: a["largest"] >= 131_072),
    Question("accumulation: 1024 / (16 x 2)", "calc batch --global 1024 --seq 4096 --dp 16 --micro 2",
             lambda a: a["accumulation"] == 32),
    Question("what is hidden", "estimate llama-3-70b --on 8x8xh100 --tp 8 --pp 4",
             lambda a: near(sum(a["time_s"].values()), a["step_s"], 1e-6)),
    Question("host memory: 12 bytes of each parameter", "estimate llama-3-70b --on 8xh100 --tp 8 --offload optimizer",
             lambda a: a["host_bytes"] * (8 if a["host_bytes"] < 4e11 else 1) >= 12 * LLAMA_70B * 0.99),
    Question("cards without NVLink", "plan llama-3-8b --on 4xrtx4090",
             lambda a: _gpus(_recommended(a)["policy"]) == 4),
    Question("fp8 is faster, less than twice",
             "compare llama-3-70b --on 8x8xh100 --policy tp=4,pp=4,vpp=5,cp=2 --precision bf16 --precision fp8",
             lambda a: 1 < _steps(a)[0] / _steps(a)[1] < 2),
    Question("the model", "catalog models llama-3-70b", lambda a: a["parameters"] == LLAMA_70B),
)  # fmt: skip
STORIES = {
    "a pretraining engineer with 32 H100": (
        Question("plan", "plan llama-3-8b --on 4x8xh100 --tokens 1T",
                 lambda a: _gpus(_recommended(a)["policy"]) == 32),
        Question("tp is given", "plan llama-3-8b --on 4x8xh100 --tp 4", lambda a: _recommended(a)["policy"]["tp"] == 4),
        Question("by its id", "estimate meta-llama/Meta-Llama-3-8B --on 4x8xh100 --zero 3", lambda a: a["fits"]),
    ),
    "a researcher with two A100 nodes on Ethernet": (
        Question("one port a node", "plan llama-3-8b --on 2x8xa100 --nic 100Gbps/node",
                 lambda a: _gpus(_recommended(a)["policy"]) == 16),
        Question("the cluster", "catalog clusters 2x8xa100", lambda a: a["gpus"] == 16),
    ),
    "a lead who sizes a cluster": (
        Question("405B in 60 days: 6 FLOP x parameters x tokens at 25 to 55 % of the peak",
                 "size llama-3.1-405b --on b200 --tokens 15T --within '60 d'",
                 lambda a: 6 * LLAMA_405B * 15e12 / (60 * 86400 * 2.25e15) / 0.55 <= a["smallest_in_time"]
                 <= 6 * LLAMA_405B * 15e12 / (60 * 86400 * 2.25e15) / 0.25),
    ),
    "someone who trains experts": (
        Question("plan", "plan qwen3-30b-a3b --on 4x8xh100", lambda a: _gpus(_recommended(a)["policy"]) == 32),
        Question("one collective: 7/8 of 32 MiB over 450 GB/s at least",
                 "calc collective all_gather 'bf16[1024,16384]' --on 8xh100",
                 lambda a: any(isinstance(v, float) and v >= 0.999 * 7 / 8 * 2**25 / 450e9 for v in _leaves(a))),
    ),
    "someone at home with four RTX 4090": (
        Question("plan", "plan qwen2.5-1.5b --on 4xrtx4090", lambda a: _gpus(_recommended(a)["policy"]) == 4),
        Question("how long", "size qwen2.5-1.5b --on 4xrtx4090 --tokens 1B", lambda a: a["sizes"][-1]["seconds"] > 0),
        Question("which programs are known", "catalog programs", lambda a: "megatron-core" in json.dumps(a)),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    question: Question
    answered: bool
    right: bool
    seconds: float
    why: str


def fresh_shardwise(folder: Path) -> list[str]:
    """The command, installed from this tree into an environment of its own."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, str(ROOT)], check=True)
    return [str(folder / "env" / "bin" / "shardwise")]


def asked(command: list[str], question: Question, folder: Path) -> Outcome:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHARDWISE"))}
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, *shlex.split(question.words), "--json"],
            cwd=folder, env=kept, capture_output=True, text=True, timeout=LONGEST_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(question, False, False, LONGEST_S, f"no answer in {LONGEST_S} s")
    seconds = time.perf_counter() - begun
    if done.returncode != question.code:
        last = done.stderr.strip().splitlines()[-1:] or [""]
        return Outcome(question, False, False, seconds, f"exit code {done.returncode}: {last[0]}")
    try:
        right = bool(question.holds(json.loads(done.stdout)))
    except (ValueError, KeyError, TypeError, IndexError) as problem:
        return Outcome(question, True, False, seconds, f"{type(problem).__name__}: {problem}")
    return Outcome(question, True, right, seconds, "" if right else "the check does not hold")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--here", action="store_true", help="with the environment that runs this")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command = [sys.executable, "-m", "shardwise"] if given.here else fresh_shardwise(folder)
        outcomes = []
        for story, questions in {"twenty questions": TWENTY, **STORIES}.items():
            print(story)
            for question in questions:
                found = asked(command, question, folder)
                outcomes.append(found)
                mark = "right" if found.right else "WRONG" if found.answered else "NO ANSWER"
                print(f"  {mark:10}{found.seconds:6.1f} s  shardwise {question.words}  {found.why}", flush=True)
    figures: dict[str, Any] = {
        "asked": len(outcomes),
        "answered": sum(o.answered for o in outcomes),
        "wrong": sum(o.answered and not o.right for o in outcomes),
        "seconds_max": round(max(o.seconds for o in outcomes), 1),
    }
    figures |= counted()
    if given.json:
        print(json.dumps(figures))
    return 0 if figures["answered"] == figures["asked"] and not figures["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
