"""Every verb and the question it answers. A verb NAME lives in the module NAME of this package, in a function or app
of that name.

The module is imported only when the verb is run, so that `--help` costs nothing of numpy or the catalog.
"""

VERBS: dict[str, str] = {
    "plan": "The best policies for a model on a cluster; why others lose.",
    "posttrain": "Reinforcement learning: who rolls out, who trains, how long.",
    "operate": "A run with failures: days, restarts, saves, improvements.",
    "preflight": "Are these nodes ready for the job? Each item pass or fail.",
    "size": "GPUs and days for tokens, a budget; --max: what fits.",
    "compare": "Policies, clusters and precisions side by side, in percent.",
    "sweep": "GPUs, sequence, batch or network moved: table, figure, knee.",
    "estimate": "One policy: memory, step time, MFU, traffic, cost, verdict.",
    "simulate": "One step in time: schedules, bubble, stragglers, a trace.",
    "fabric": "What a policy does to the network, link by link.",
    "search": "Stages, ranks, experts, cuts: the best, by five methods.",
    "sync": "Data parallelism that communicates less: cost, convergence.",
    "validate": "Predictions compared with a table of measured runs.",
    "run": "Train with the planned policy on PyTorch.",
    "checkpoints": "Checkpoints of any program: list, verify, compare, convert.",
    "verify": "Run a plan, or your own split model; compare what happens.",
    "export": "Launch arguments or configuration files for ten programs.",
    "place": "Which free nodes to take, in which order.",
    "check": "A launch file: its meaning, whether it fits, faster settings.",
    "why": "Why is my run slow, or why did it fail? From its files.",
    "watch": "A live run: step against prediction, slow ranks, causes.",
    "trace": "Your own PyTorch step as one rank of any world, on a CPU.",
    "auto": "Your own PyTorch model: split, proven, run, for a cluster.",
    "learn": "Logs of yours tighten every answer: write a profile to use.",
    "calibrate": "Measure this GPU and these links; write a profile to use.",
    "calc": "Small sums: batch, roofline, MFU, collective, power.",
    "catalog": "Models, GPUs, clusters, programs, published layouts.",
    "serve": "The page: plan, change and learn it in a browser.",
    "mcp": "A server for agents and editors: verbs as MCP tools.",
}

WORDS: dict[str, dict[str, str]] = {
    "calc": {
        "batch": "Global batch, micro-batch, accumulation and how they relate.",
        "roofline": "How many tokens per GPU hide memory and network.",
        "mfu": "Utilization of a run by each convention in use.",
        "collective": "One collective: its time by each algorithm, bytes by switch.",
        "pipeline": "A pipeline from t1 on: who works in each time step.",
        "power": "Megawatts, megawatt hours and dollars of any number of GPUs.",
        "loss": "Scores to probabilities, loss and gradient.",
        "compress": "A vector before and after a compressor.",
    },
    "catalog": {
        "models": "The models, or all about one of them.",
        "gpus": "The GPUs: peaks, memory, links, power, price.",
        "clusters": "The clusters, level by level; --yaml to edit.",
        "programs": "The training programs: errors, origin of constants.",
        "layouts": "Layouts others published: predicted against reported.",
        "terms": "Every word and code on the screen, and its meaning.",
        "lessons": "The course in order, or one lesson, in English or Korean.",
    },
    "checkpoints": {
        "diff": "Two checkpoints, tensor by tensor.",
        "convert": "Another format or layout, proven equal by reading it back.",
    },
    "search": {
        "stages": "The best layers for each pipeline stage.",
        "cuts": "The tensor-parallel cut of every matrix, near and far.",
    },
}
"""second words of a verb; each lives in a module of its name"""
ONLY_WORDS = ("calc",)
"""verbs that answer nothing without one"""

FIRST_SCREEN = ("plan", "estimate", "size", "check", "run", "why", "learn", "serve")
"""verbs that `shardwise --help` shows; `--help-all` shows all"""

GROUPS: dict[str, tuple[str, ...]] = {
    "Decide": ("plan", "estimate", "size", "compare", "sweep", "operate", "posttrain"),
    "Look closer": ("simulate", "search", "sync", "fabric"),
    "Launch and run": (
        "export", "check", "place", "preflight", "run", "verify", "checkpoints", "watch", "why", "trace", "auto",
        "learn", "calibrate",
    ),
    "Know": ("calc", "catalog", "validate", "serve", "mcp"),
}  # fmt: skip
"""how `--help` lists them; a verb that is not here comes last"""
OTHERS = "More"
BESIDE = {"lab": "./lab"}
"""verbs of this project in distributions of their own, and where in a checkout they are installed from"""


def group_of(verb: str) -> str:
    return next((name for name, verbs in GROUPS.items() if verb in verbs), OTHERS)


def import_path(verb: str) -> str:
    return f"{__package__}.{verb}:{verb}"
