"""Every verb and the question it answers. A verb NAME lives in the module NAME of this package, in a function NAME.

The module is imported only when the verb is run, so that `--help` costs nothing of numpy or the catalog.
"""

VERBS: dict[str, str] = {
    "plan": "The best policies for a model on a cluster, and why the others lose.",
    "operate": "A run with failures: days, restarts, checkpoints, dollars, and what would help.",
    "size": "How many GPUs and how long for so many tokens, a deadline or a budget.",
    "max": "The largest sequence, micro-batch or model that fits, and what is full beyond.",
    "compare": "Policies, clusters and precisions side by side, differences in percent.",
    "sweep": "One axis moved (GPUs, sequence, micro-batch, network): table, CSV, figure, knee.",
    "estimate": "One policy: memory, step time, MFU, traffic, cost, verdict.",
    "simulate": "A step in time: schedules compared, bubble, stragglers, jitter, a trace.",
    "fabric": "What a policy does to the network, link by link, and what it asks of it.",
    "collective": "One collective: data sheet, fitted time, each algorithm, bytes through every switch.",
    "stages": "The best layers for each pipeline stage, and which of them recompute.",
    "search": "Stages, ranks on a fabric, experts on ranks, cuts: five methods, one interface.",
    "layouts": "Layouts that others published: predicted against reported, and their rank.",
    "cuts": "The tensor-parallel cut of every matrix: collectives, time near and far, memory.",
    "sync": "Data parallelism that communicates less: list, cost, simulate, reproduce.",
    "validate": "Predictions held against a table of measured runs.",
    "run": "Train with the planned policy on PyTorch: local ranks or torchrun.",
    "checkpoints": "Checkpoints of a run: list them, verify every byte, delete old ones.",
    "verify": "Run a plan; hold its messages and memory against the prediction.",
    "export": "A policy as what is launched: arguments or configuration, scripts, rank map.",
    "place": "Which free nodes a policy takes, in which order, from the site's own topology.",
    "check": "A launch script or configuration: what it says, whether it fits, what is faster.",
    "why": "A measured run: what it loses its time to, beside its prediction, and the cure.",
    "watch": "A run while it goes on: step against prediction, the slow rank, causes and cures.",
    "doctor": "A failed or slow run: what happened first, what was lost, how to go on.",
    "trace": "Your own PyTorch step on a pretended world: messages, memory, time.",
    "calibrate": "Measure this GPU and these links; write a profile every verb can use.",
    "models": "The models shardwise knows, or everything about one of them.",
    "gpus": "The GPUs shardwise knows: peaks, memory, links, power, price.",
    "clusters": "The clusters shardwise knows, level by level; --yaml writes a file to edit.",
    "stacks": "The training programs shardwise knows: errors, and the origin of every constant.",
    "roofline": "How much work hides memory and network: critical intensity and batch.",
    "mfu": "Utilization of a run by each convention in use, side by side.",
    "batch": "What equals what: global batch, micro-batch, accumulation, data parallel.",
    "mcp": "A server for agents and editors (Model Context Protocol): verbs as tools.",
    "schema": "The JSON Schema of what a verb writes with --json.",
    "completion": "A script with which bash, zsh or fish completes verbs and options.",
}


def import_path(verb: str) -> str:
    return f"{__package__}.{verb}:{verb}"
