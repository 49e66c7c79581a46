"""Jobs of SkyPilot and Kubernetes: the script within their YAML, as a script of its own."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

OF_SKYPILOT = ("resources", "setup", "num_nodes", "file_mounts", "workdir", "envs")
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
STARTED_BY = ("Launcher", "launcher")
"""replicas of an MPI job that have no GPUs"""
_NAME = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"\$\(([A-Za-z_]\w*)\)")
"""a container's own variable, as Kubernetes writes it"""


def script_within(documents: Sequence[Any]) -> str:
    """Empty: these are not such jobs."""
    found = [text for document in documents if isinstance(document, Mapping) for text in _scripts(document)]
    return "\n".join(found)


def files_within(documents: Sequence[Any]) -> dict[str, str]:
    """Files that a ConfigMap lays beside the script."""
    maps = [each.get("data") for each in documents if isinstance(each, Mapping) and each.get("kind") == "ConfigMap"]
    return {name: text for each in maps if isinstance(each, Mapping) for name, text in each.items() if text}


def _scripts(job: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(job.get("run"), str) and any(name in job for name in OF_SKYPILOT):
        yield _of_skypilot(job)
    if "kind" in job and ("apiVersion" in job or "spec" in job):
        spec = job.get("spec")
        yield from _of_kubernetes(spec, _nodes(spec)) if isinstance(spec, Mapping) else ()


def _of_skypilot(job: Mapping[str, Any]) -> str:
    nodes = str(job.get("num_nodes") or 1)
    each = _accelerators(job.get("resources"))
    variables = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NUM_GPUS_PER_NODE": each}
    for name in ("envs", "secrets"):
        stated = job.get(name)
        variables |= dict(stated) if isinstance(stated, Mapping) else {}
    script = str(job["run"])
    for target, source in (job.get("file_mounts") or {}).items():
        # a file of the project under another name on the cluster
        script = script.replace(target, source) if isinstance(source, str) and "://" not in source else script
    return "\n".join([*_asked(nodes, each), *_assigned(variables), script])


def _accelerators(resources: Any) -> str:
    """GPUs of a node: of 'A100:8', {A100: 8}, or choices that have as many each."""
    if not isinstance(resources, Mapping):
        return ""
    stated = resources.get("accelerators")
    if not stated:
        choices = resources.get("any_of") or resources.get("ordered")
        counts = {_accelerators(each) for each in choices} if isinstance(choices, list) else set()
        return counts.pop() if len(counts) == 1 else ""
    listed = stated if isinstance(stated, list) else [stated]
    if isinstance(stated, Mapping):
        listed = [f"{name}:{count}" if count and count != "null" else name for name, count in stated.items()]
    names = [(str(each).partition(":")[0], str(each).partition(":")[2] or "1") for each in listed]
    counts = {count for name, count in names if not name.startswith("tpu")}
    found = counts.pop() if len(counts) == 1 else ""
    return found if found.isdigit() else ""


def _of_kubernetes(node: Any, nodes: str) -> Iterator[str]:
    """Every container's command, with its variables."""
    if isinstance(node, list):
        for each in node:
            yield from _of_kubernetes(each, nodes)
    if not isinstance(node, Mapping):
        return
    if isinstance(node.get("trainer"), Mapping):
        yield from _container(node["trainer"], str(node["trainer"].get("numNodes") or nodes))
    if isinstance(node.get("entrypoint"), str):
        yield str(node["entrypoint"])
    for name, inner in node.items():
        if name == "containers" and isinstance(inner, list):
            for each in inner:
                yield from _container(each, nodes)
        elif name != "initContainers":
            yield from _of_kubernetes(inner, nodes)


def _container(container: Any, nodes: str) -> Iterator[str]:
    if not isinstance(container, Mapping):
        return
    words = [str(word) for name in ("command", "args") for word in _listed(container.get(name))]
    if not words:
        return
    limits = [each for each in (container.get("resources") or {}).values() if isinstance(each, Mapping)]
    each = next((str(limit[name]) for limit in limits for name in GPUS if limit.get(name)), "")
    each = str(container.get("numProcPerNode") or each)
    stated = [item for item in _listed(container.get("env")) if isinstance(item, Mapping)]
    variables = {str(item.get("name")): item.get("value") for item in stated}
    yield "\n".join([*_asked(nodes, each), *_assigned(variables), _command(words)])


def _command(words: Sequence[str]) -> str:
    words = [_REFERENCE.sub(r"${\1}", word) for word in words]
    if PurePosixPath(words[0]).name in ("bash", "sh") and len(words) > 2 and re.fullmatch(r"-\w*c", words[1]):
        return words[2]
    # words with variables, which the one who submits the job fills in, stay as they are
    return " ".join(f'"{word}"' if "$" in word and '"' not in word else shlex.quote(word) for word in words)


def _nodes(spec: Any) -> str:
    """Pods of a job; empty: not stated as a number."""
    for name, kinds in spec.items():
        if name.endswith("ReplicaSpecs") and isinstance(kinds, Mapping):
            counts = [str((kind or {}).get("replicas") or 1) for role, kind in kinds.items() if role not in STARTED_BY]
            return str(sum(map(int, counts))) if all(map(str.isdigit, counts)) else ""
    jobs = spec.get("replicatedJobs")
    if isinstance(jobs, list) and len(jobs) == 1 and isinstance(jobs[0], Mapping):
        inner = ((jobs[0].get("template") or {}).get("spec") or {}).get("parallelism") or 1
        counts = [str(jobs[0].get("replicas") or 1), str(inner)]
        return str(int(counts[0]) * int(counts[1])) if all(map(str.isdigit, counts)) else ""
    stated = str(spec.get("parallelism") or spec.get("completions") or 1)
    return stated if stated.isdigit() else ""


def _asked(nodes: str, each: str) -> list[str]:
    """Nodes and GPUs, as Slurm is asked for them."""
    asked = [("--nodes", nodes), ("--gpus-per-node", each)]
    return [f"#SBATCH {name}={value}" for name, value in asked if value.isdigit()]


def _assigned(variables: Mapping[str, Any]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if _is_known(name, value)]


def _is_known(name: str, value: Any) -> bool:
    return bool(_NAME.fullmatch(name)) and isinstance(value, str) and "$" not in value and value not in ("", "null")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []
