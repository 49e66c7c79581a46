"""What starts a job: a torchrun script, an sbatch file around it, and the environment that belongs to the flags."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from shardwise.programs.formats._contract import NO_CARDS, HostCards, Launch, Written
from shardwise.spec.cluster import Cluster
from shardwise.spec.usual import usual_fabric

WIDEST = 110
MASTER_PORT = 29500
"""torchrun's own default"""

YOURS = {"NCCL_SOCKET_IFNAME": "the interface of the first contact", "NCCL_IB_HCA": "NICs of {rails} rails"}
"""what only the site knows"""


def host_gpus(cluster: Cluster) -> int:
    """GPUs of one host: of an NVLink domain that spans many hosts, those of a tray."""
    tray = usual_fabric(cluster.gpu).tray
    return min(cluster.node_size, tray) if tray else cluster.node_size


def nodes_of(cluster: Cluster) -> int:
    each = host_gpus(cluster)
    if cluster.gpus % each:
        raise ValueError(f"on: {cluster.gpus} GPUs do not fill hosts of {each}; write a multiple of {each}")
    return cluster.gpus // each


def network_environment(cluster: Cluster, cards: HostCards = NO_CARDS) -> dict[str, str]:
    """What the fabric's description and the site's names say about NCCL; absent where NCCL's default is right."""
    found: dict[str, str] = {}
    if cards.interface:
        found["NCCL_SOCKET_IFNAME"] = cards.interface
    if cards.names:
        # the sign asks for these names, not for all that begin so: mlx5_1 is not mlx5_10
        found["NCCL_IB_HCA"] = "=" + ",".join(cards.names)
    if len(cluster.levels) > 1 and cluster.rails > 1:
        # equal cards of all nodes share a leaf, so rings stay on their rail; between rails go NVLink or the spine
        found |= {"NCCL_CROSS_NIC": "0", "NCCL_PXN_DISABLE": "0" if cluster.forwards else "1"}
    if any(level.kind == "network" and level.reduces for level in cluster.levels):
        found["NCCL_COLLNET_ENABLE"] = "1"
    if any(level.kind == "nvlink" and level.reduces for level in cluster.levels):
        found["NCCL_NVLS_ENABLE"] = "1"
    return found


def script(
    launch: Launch,
    program: str,
    arrays: Mapping[str, Sequence[str]],
    environment: Mapping[str, str],
    comments: Iterable[str] = (),
    launcher: str = "",
) -> str:
    """A shell script that starts the ranks of one node; variables name what differs from node to node."""
    cluster = launch.case.cluster
    job = launch.case.job
    lines = [
        "#!/usr/bin/env bash",
        f"# {launch.case.model.name} on {cluster.name}: {job.global_batch} sequences of {job.seq} tokens a step.",
        *[f"# {line}" for line in (*comments, *launch.comments)],
        "set -euo pipefail",
        f"NNODES=${{NNODES:-{nodes_of(cluster)}}}",
        f"GPUS_PER_NODE=${{GPUS_PER_NODE:-{host_gpus(cluster)}}}",
        "NODE_RANK=${NODE_RANK:-${SLURM_NODEID:-0}}",
        "MASTER_ADDR=${MASTER_ADDR:-localhost}",
        f"MASTER_PORT=${{MASTER_PORT:-{MASTER_PORT}}}",
        "",
        *[f"export {name}={shlex.quote(value)}" for name, value in environment.items()],
        *_yours(cluster, environment),
        *([""] if environment else []),
    ]
    for name, words in arrays.items():
        lines += [f"{name}=(", *wrapped(words), ")"]
    start = launcher or (
        'torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \\\n'
        '    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"'
    )
    used = " ".join(f'"${{{name}[@]}}"' for name in arrays)
    lines += ["", f'{start} \\\n    {program} {used} "$@"'.replace("  ", "  ")]
    return "\n".join(lines) + "\n"


def _yours(cluster: Cluster, environment: Mapping[str, str]) -> list[str]:
    """A comment on what was not stated and a job of several nodes may need."""
    open_ones = [
        f"{name} ({told.format(rails=cluster.rails)})" for name, told in YOURS.items() if name not in environment
    ]
    return [f"# yours: {', '.join(open_ones)}"] if len(cluster.levels) > 1 and open_ones else []


def configured(
    launch: Launch, file: str, text: str, program: str, words: Sequence[str], environment: Mapping[str, str],
    notes: tuple[str, ...], launcher: str = "", smoke: str = "",
) -> Written:  # fmt: skip
    """A configuration, and the script that starts a program with it."""
    started = script(launch, program, {"ARGS": words} if words else {}, environment, notes, launcher)
    return Written({file: text, "train.sh": started}, dict(environment), notes, smoke)


def wrapped(words: Sequence[str]) -> list[str]:
    """An option and its values on a line, as long as they fit together."""
    lines, current = list[str](), ""
    for word in words:
        text = word if word.startswith(("$", '"')) else shlex.quote(word)
        if current and (word.startswith("--") or "=" in word) and len(current) + len(text) > WIDEST // 2:
            lines.append(f"    {current}")
            current = text
        else:
            current = f"{current} {text}".strip()
    return [*lines, *([f"    {current}"] if current else [])]


def sbatch(launch: Launch, name: str, script_name: str, hints: Sequence[str]) -> str:
    cluster = launch.case.cluster
    return "\n".join([
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodes={nodes_of(cluster)}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={host_gpus(cluster)}",
        "#SBATCH --exclusive",
        *hints,
        "set -euo pipefail",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"export MASTER_PORT=${{MASTER_PORT:-{MASTER_PORT}}}",
        "export NNODES=$SLURM_NNODES",
        'cd "$SLURM_SUBMIT_DIR"',
        f'srun bash {script_name} "$@"',
        "",
    ])  # fmt: skip


def flag_words(settings: Mapping[str, object]) -> list[str]:
    """`--name value`; true is the name alone, false is nothing."""
    words: list[str] = []
    for name, value in settings.items():
        if value is False or value is None:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words += [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]
    return words
