"""Exports started as they are written, by the trial that each folder names, on two ranks without a GPU."""

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from shardwise.show.cli import main

JOB = ["qwen3-0.6b", "--on", "2xh100", "--micro", "1", "--global-batch", "4", "--seq", "64", "--recompute", "none"]
CASES = {
    "trl, ZeRO 3": ("trl", ["--zero", "3"], "--use_cpu"),
    "trl, LoRA": ("trl", ["--zero", "0", "--tune", "lora,rank=4"], "--use_cpu"),
    "accelerate, ZeRO 3": ("accelerate", ["--zero", "3"], "--use_cpu"),
    "accelerate, plain": ("accelerate", ["--zero", "0"], "--use_cpu"),
    "deepspeed, ZeRO 1": ("deepspeed", ["--zero", "1"], ""),
    "deepspeed, ZeRO 2": ("deepspeed", ["--zero", "2"], ""),
    "deepspeed, ZeRO 3": ("deepspeed", ["--zero", "3"], ""),
}
"""what -> (target, its policy, words behind the trial without a GPU)"""
STEPPED = re.compile(r"'train_runtime'|smoke: 2 steps of ZeRO")
LONGEST_S = 400


def exports_started(programs: Path) -> dict[str, object]:
    """`programs`: a folder of `accelerate`, `torchrun` and `python` that know the targets' packages."""
    started = [_started(what, *case, programs, 29_700 + number) for number, (what, case) in enumerate(CASES.items())]
    print(f"exports: {sum(started)} of {len(started)} started and stepped")
    return {"exports_started": sum(started), "exports_tried": len(started)}


def _started(what: str, target: str, policy: list[str], behind: str, programs: Path, port: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "launch"
        if main(["export", *JOB, *policy, "--to", target, "--out", str(place), "--json"]) not in (0, 1):
            print(f"exports {what}: not written")
            return False
        script = (place / "train.sh").read_text(encoding="utf-8")
        command = next(line for line in script.splitlines() if line.startswith("# a few steps")).partition(": ")[2]
        command = f"{command.partition(' (')[0]} {behind}"
        environment = {
            **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "MASTER_PORT": str(port), "OUTPUT": "out",
            "DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        try:
            ended = subprocess.run(["bash", "-c", command], cwd=place, env=environment, timeout=LONGEST_S, check=False,
                                   capture_output=True, text=True)  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"exports {what}: {shlex.quote(command)} did not end in {LONGEST_S} s")
            return False
        stepped = ended.returncode == 0 and bool(STEPPED.search(ended.stdout + ended.stderr))
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        print(f"exports {what}: {'started' if stepped else f'not started ({last[:120]})'}")
        return stepped
