"""Training over NCCL on one GPU that all ranks share: right, recoverable, and as long as predicted?

    python benchmarks/shared_gpu.py --json [--parts axes,prove] [--out FOLDER] [--minutes M] [--device cpu]

nccl: its release; ranks: the most that shared the device; plans: how many ran, of every axis and schedule;
losses_equal: how many trained as one rank on the same device does (losses within 1e-4 in fp32); bytes_equal: how many
sent exactly the predicted messages; prove_programs: programs of `auto` whose split equals one process; time_mape: of
steps of shared ranks, predicted from the socket's own collectives before they were measured. parts: the rest, part by
part: small steps of one GPU, overlap by a trace's streams, checkpoints, kills, a rank that stands still (found by
NCCL's time-out and named by `why`), Muon and GRPO, a script for torchrun, losses in 16 bits. Each part is a process
with a time limit of its own, and what it knew until then stays; only what is timed compiles its element-wise chains.
Where there is no GPU the line says so under `skipped`; `--device cpu` runs the same over gloo, to test this file.
`--page FILE.json` writes docs/benchmarks/shared-gpu.md from what was printed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from shardwise.run.runtime.share_gpu import multi_process_service, shared_gpu

HERE = Path(__file__).resolve().parent
STAGES: tuple[tuple[tuple[str, float], ...], ...] = (
    (("axes", 90.0), ("half", 90.0), ("prove", 90.0), ("script", 60.0)),
    (("timeout", 80.0),),
    (("kills", 100.0),),
    (("schedules", 90.0), ("optimizers", 90.0), ("checkpoints", 90.0)),
    (("overlap", 50.0),),
    (("fabric", 110.0),),
    (("small", 60.0),),
)
"""parts that run beside each other, with the seconds that each may take; what is timed runs alone"""
COMPILED = ("small", "fabric", "overlap")
ENDED = ("timeout", "kills")
"""without MPS: what kills one of its clients may end the others too"""


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--json", action="store_true")
    given.add_argument("--parts", default="", help="some of them, joined by commas")
    given.add_argument("--out", type=Path, help="a file for each part, written as it goes on")
    given.add_argument("--minutes", type=float, default=60.0, help="all parts together")
    given.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given.add_argument("--page", type=Path, metavar="FILE", help="write the page from these figures and stop")
    args = given.parse_args()
    if args.page:
        from _shared_gpu_page import write

        write(args.page)
        return
    nccl = None
    if args.device == "cuda":
        try:
            shared = shared_gpu(2)
        except ValueError as reason:
            print(json.dumps(figures({}) | {"skipped": str(reason)}))
            return
        print(shared.text(), file=sys.stderr)
        nccl = ".".join(map(str, shared.nccl))
    wanted = set(args.parts.split(",")) if args.parts else {name for stage in STAGES for name, _ in stage}
    with tempfile.TemporaryDirectory() as folder:
        out = args.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        until = monotonic() + 60.0 * args.minutes
        with multi_process_service() if args.device == "cuda" else nullcontext():
            for stage in STAGES:
                run([part for part in stage if part[0] in wanted], out, args.device, until)
        parts = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json")) if path.stem in wanted}
    print(json.dumps(figures(parts) | {"nccl": nccl, "device": named(args.device), "parts": parts}))


def run(parts: Sequence[tuple[str, float]], out: Path, device: str, until: float) -> None:
    """Beside each other, each to its own limit."""
    running = {}
    for name, limit_s in parts:
        log = (out / f"{name}.log").open("w")
        part = str(HERE / "_shared_gpu_parts.py")
        words = [sys.executable, part, name, str(out / f"{name}.json"), "--device", device]
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if name not in COMPILED:
            environment |= {"TORCHDYNAMO_DISABLE": "1", "TORCH_COMPILE_DISABLE": "1"}
        if name in ENDED:
            environment["CUDA_MPS_PIPE_DIRECTORY"] = str(out)
        # a group of its own: ranks that a part leaves behind end with it
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
        running[name] = (process, monotonic() + limit_s)
    while running:
        for name, (process, limit) in list(running.items()):
            late = monotonic() > min(limit, until)
            if late:
                os.killpg(process.pid, 9)
                process.wait()
            if late or process.poll() is not None:
                del running[name]
                said = (out / f"{name}.log").read_text()[-600:] if process.returncode else ""
                print(f"{name}: {'out of time' if late else process.returncode} {said}", file=sys.stderr, flush=True)
        sleep(0.1)


def named(device: str) -> str:
    if device == "cpu":
        return "cpu"
    code = "import torch; print(torch.cuda.get_device_name(), 'torch', torch.__version__)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()


def figures(parts: dict[str, Any]) -> dict[str, Any]:
    plans = [row for part in ("axes", "schedules") for row in parts.get(part, {}).get("rows", [])]
    ran = [row for row in plans if "failed" not in row]
    proofs = parts.get("prove", {}).get("rows", [])
    timed = [row["error"] for row in parts.get("fabric", {}).get("rows", []) if "error" in row]
    return {
        "nccl": None, "ranks": max((row["ranks"] for row in ran), default=None), "plans": len(ran) if plans else None,
        "losses_equal": sum(row["equal"] for row in ran) if plans else None,
        "bytes_equal": sum(not row["messages_wrong"] for row in ran) if plans else None,
        "prove_programs": sum(bool(row.get("equal")) for row in proofs) if proofs else None,
        "time_mape": sum(map(abs, timed)) / len(timed) if timed else None,
        "failed": {row["name"]: row["failed"] for row in plans if "failed" in row},
    }  # fmt: skip


if __name__ == "__main__":
    main()
