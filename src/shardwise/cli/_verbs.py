"""Every verb and the question it answers. A verb NAME lives in the module NAME of this package, in a function NAME.

The module is imported only when the verb is run, so that `--help` costs nothing of numpy or the catalog.
"""

VERBS: dict[str, str] = {
    "plan": "The best policies for a model on a cluster; why others lose.",
    "operate": "A run with failures: days, restarts, saves, improvements.",
    "preflight": "Are these nodes ready for the job? Each item pass or fail.",
    "size": "How many GPUs and how long for tokens, a deadline, a budget.",
    "max": "The largest sequence, micro-batch or model that fits.",
    "compare": "Policies, clusters and precisions side by side, in percent.",
    "sweep": "GPUs, sequence, batch or network moved: table, figure, knee.",
    "estimate": "One policy: memory, step time, MFU, traffic, cost, verdict.",
    "simulate": "One step in time: schedules, bubble, stragglers, a trace.",
    "fabric": "What a policy does to the network, link by link.",
    "collective": "One collective: its time by each algorithm, bytes by switch.",
    "stages": "The best layers for each pipeline stage.",
    "search": "Stages, ranks, experts or cuts, solved by five methods.",
    "layouts": "Layouts others published: predicted against reported.",
    "cuts": "The tensor-parallel cut of every matrix, near and far.",
    "sync": "Data parallelism that communicates less: cost, convergence.",
    "validate": "Predictions compared with a table of measured runs.",
    "run": "Train with the planned policy on PyTorch.",
    "checkpoints": "Checkpoints of a run: list, verify every byte, delete old.",
    "verify": "Run a plan; compare messages and memory with the prediction.",
    "export": "Launch arguments or configuration files for ten programs.",
    "place": "Which free nodes to take, in which order.",
    "check": "A launch file: its meaning, whether it fits, faster settings.",
    "why": "Why is my run slow? Its log or trace against the prediction.",
    "watch": "A live run: step against prediction, slow ranks, causes.",
    "doctor": "A failed run: what came first, what is lost, how to go on.",
    "trace": "Your own PyTorch step as one rank of any world, on a CPU.",
    "auto": "Your own PyTorch model: split, proven, run, for a cluster.",
    "prove": "A split of your own model, compared with one process.",
    "calibrate": "Measure this GPU and these links; write a profile to use.",
    "models": "The models in the catalog, or all about one of them.",
    "gpus": "The GPUs in the catalog: peaks, memory, links, power, price.",
    "clusters": "The clusters in the catalog, level by level; --yaml to edit.",
    "stacks": "The training programs known: errors, origin of constants.",
    "roofline": "How many tokens per GPU hide memory and network.",
    "mfu": "Utilization of a run by each convention in use.",
    "batch": "Global batch, micro-batch, accumulation and how they relate.",
    "answers": "Problems of four texts, answered live, their errors marked.",
    "serve": "The page: plan, change and learn it in a browser.",
    "mcp": "A server for agents and editors: verbs as MCP tools.",
    "schema": "The JSON Schema of a verb's --json output.",
    "completion": "A script that completes verbs and options in your shell.",
}

FIRST_SCREEN = ("plan", "estimate", "size", "compare", "check", "run", "why", "serve")
"""verbs that `shardwise --help` shows; `--help-all` shows all"""

GROUPS: dict[str, tuple[str, ...]] = {
    "Decide": ("plan", "estimate", "size", "max", "compare", "sweep", "operate", "batch", "roofline", "mfu"),
    "Look closer": ("simulate", "stages", "search", "cuts", "sync", "fabric", "collective", "layouts"),
    "Launch and run": (
        "export", "check", "place", "preflight", "run", "verify", "checkpoints", "watch", "doctor", "why", "trace",
        "auto", "prove", "calibrate",
    ),
    "Know": ("models", "gpus", "clusters", "stacks", "validate", "answers", "serve", "schema", "mcp", "completion"),
}  # fmt: skip
"""how `--help` lists them; a verb that is not here comes last"""
OTHERS = "More"
BESIDE = {"lab": "./lab"}
"""verbs of this project in distributions of their own, and where in a checkout they are installed from"""


def group_of(verb: str) -> str:
    return next((name for name, verbs in GROUPS.items() if verb in verbs), OTHERS)


def import_path(verb: str) -> str:
    return f"{__package__}.{verb}:{verb}"
