"""Software: versions that must go together on one node."""

import re

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, passed, unknown, warned
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import cards_of
from shardwise.run.preflight.readers.smi import gpus_of

_NUMBERED = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d{1,3}\.\d{1,3})")
STRICT = ("torch", "torch_cuda", "torch_hip", "nccl", "cuda_driver")
"""versions that must be equal on all hosts; others are told where they differ"""


def versions_of(node: Node) -> dict[str, str]:
    """Everything that should be equal on all nodes, by name; what is not there is away."""
    found = {name: node.packages[name] for name in ("torch", "torch_cuda", "torch_hip", "nccl", "python")
             if name in node.packages}  # fmt: skip
    rows = gpus_of(node)
    if not isinstance(rows, Finding):
        found["driver"] = rows[0]["driver_version"]
        found["vbios"] = ", ".join(sorted({row["vbios_version"] for row in rows}))
    if (version := cuda_of_driver(node)) is not None:
        found["cuda_driver"] = version
    printed = node.run("ofed_info -s")
    if printed is not None and not printed.code and printed.text.strip():
        found["ofed"] = printed.text.split()[0].rstrip(":")[:60]
    firmware = sorted({card.firmware for card in cards_of(node) if card.firmware})
    if firmware:
        found["nic firmware"] = ", ".join(firmware)
    if kernel := node.read("/proc/sys/kernel/osrelease"):
        found["kernel"] = kernel[:80]
    return found


def cuda_of_driver(node: Node) -> str | None:
    """The newest CUDA the driver runs."""
    printed = node.run("nvidia-smi", _CUDA.pattern)
    found = _CUDA.search(printed.text) if printed is not None else None
    return found[1] if found else None


def numbers(version: str) -> tuple[int, ...]:
    found = _NUMBERED.search(version)
    return tuple(map(int, found[0].split("."))) if found else ()


def versions(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    found = versions_of(node)
    shown = ", ".join(
        f"{name} {found[name]}" for name in ("driver", "torch", "torch_cuda", "nccl", "ofed") if name in found
    )
    if "torch" not in found:
        return unknown(
            f"torch is not in this Python ({shown or 'nothing else either'})", "run it with the job's Python"
        )
    built, runs = found.get("torch_cuda"), found.get("cuda_driver")
    if built is None and "torch_hip" not in found and "driver" in found:
        return failed(f"torch {found['torch']} is built without CUDA, GPUs are here", "install torch for CUDA")
    if built and runs and numbers(runs)[:1] < numbers(built)[:1]:
        return failed(
            f"torch is built for CUDA {built}, the driver runs {runs}", "renew the driver, or take an older torch"
        )
    if built and runs and numbers(runs) < numbers(built):
        return warned(
            f"torch is built for CUDA {built}, the driver runs {runs}", "works within a major version; renew the driver"
        )
    if "driver" not in found:
        return unknown(f"{shown}; no driver is reported")
    return passed(shown)


SUBJECT = Subject("software", 50, (
    Probe("versions", "driver, CUDA, NCCL, torch fit together", "nvidia-smi, installed packages, ofed_info", versions),
))  # fmt: skip
