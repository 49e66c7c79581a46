"""Two command lines of each verb that run as they stand, for its `--help`."""

from shardwise.show.cli._verbs import WORDS

EXAMPLES: dict[str, tuple[str, str]] = {
    "plan": ("plan llama-3-8b --on 8xh100", "plan llama-3-8b --on 8xh100 --top 3 --why --why-not tp=8"),
    "operate": ("operate llama-3-8b --on 8x8xh100 --tokens 1T",
                "operate llama-3-70b --on dgx-h100:1024 --tokens 15T --spares 2 --repair '1 d' --failures rsc-1"),
    "posttrain": ("posttrain qwen3-32b --on dgx-h100:64",
                  "posttrain llama-3.1-8b --on 2x8xh100 --algorithm grpo --lengths 1060,4096 --layout split --lag 1"),
    "preflight": ("preflight", "preflight llama-3-8b --on dgx-h100:16 --tp 8 --gather examples/preflight/node1.json"),
    "size": ("size llama-3-8b --tokens 1T --within '30 d' --mfu 0.4",
             "size llama-3-8b --on 8xh100 --max sequence --fix tp=8"),
    "compare": ("compare llama-3-8b --on 8xh100 --policy fsdp --policy tp=8",
                "compare llama-3-8b --on 8xh100 --on 8xh200 --policy fsdp"),
    "sweep": ("sweep llama-3-8b --on h100 --over gpus=8:64 --policy fsdp",
              "sweep bert-large --on dgx-v100 --over gpus=8:64 --policy ddp,micro=4 --sync psgd,dsgd"),
    "estimate": ("estimate llama-3-8b --on 8xh100 --zero 3",
                 "estimate llama-3-70b --on dgx-h100:64 --tp 8 --pp 4 --tokens 1T"),
    "simulate": ("simulate llama-3-8b --on 8xh100 --pp 4",
                 "simulate llama-3-8b --on 8xh100 --pp 4 --straggler stage=2,factor=1.2"),
    "fabric": ("fabric llama-3-8b --on dgx-h100:16 --tp 8", "fabric gpt2 --on 2x8xh100 --packets --draws 1"),
    "calc collective": ("calc collective all_gather 'bf16[1024,16384]' --on 8xh100",
                        "calc collective all_reduce '1 GB' --on dgx-h100:1024 --inner 8 --sharp"),
    "search stages": ("search stages llama-3-8b --on 8xh100 --pp 4",
                      "search stages llama-3-8b --on 8xh100 --pp 4 --recompute full"),
    "search": ("search llama-3-8b --on 8xh100 --pp 4", "search mixtral-8x7b --on 8xh100 --ep 8 --problem experts"),
    "catalog layouts": ("catalog layouts gpt-neox", "catalog layouts bloom --json"),
    "search cuts": ("search cuts llama-3-8b --block mlp --on dgx-h100:64 --tp 8",
                    "search cuts --chain 4096,16384,4096 --on 8xh100"),
    "sync": ("sync list", "sync cost dsgd --model gpt2 --on dgx-h100:16"),
    "validate": ("validate --data src/shardwise/catalog/measured/published.csv",
                 "validate --data src/shardwise/catalog/measured/published.csv --json out.json"),
    "run": ("run mnist-mlp --on 2xh100 --dp 2 --global-batch 64 --micro 32 --steps 100",
            "run docs/tiny-llama.json --on 4xh100 --tp 2 --seq 64 --global-batch 8 --steps 30"),
    "verify": ("verify mnist-mlp --on 2xh100 --dp 2 --global-batch 64 --micro 32",
               "verify examples/auto_gpt.py fsdp=2,tp=2"),
    "checkpoints": ("checkpoints out/checkpoints", "checkpoints out/checkpoints --verify --keep 3"),
    "checkpoints diff": ("checkpoints diff out/a out/b", "checkpoints diff out/a out/model.safetensors --json"),
    "checkpoints convert": ("checkpoints convert out/dcp out/universal --to deepspeed-universal",
                            "checkpoints convert out/dcp out/resharded --to dcp --plan plan.json"),
    "trace": ("trace examples/trace_llama.py --on dgx-h100:1024", "trace examples/trace_vit.py --on dgx-h100:64"),
    "auto": ("auto examples/auto_gpt.py --on 8xh100 --explain", "auto examples/*.py --on 4xh100 --device cpu --json"),
    "learn": ("learn runs.csv --on 8xh100 --out mine.toml",
              "learn train.log --config train.sh --on 8xh100 --out mine.toml"),
    "calibrate": ("calibrate --out mine.toml", "calibrate --out mine.toml --device cpu --quick"),
    "catalog models": ("catalog models", "catalog models llama-3-70b --gpu h200"),
    "catalog gpus": ("catalog gpus", "catalog gpus b200"),
    "catalog clusters": ("catalog clusters", "catalog clusters dgx-h100:1024 --yaml"),
    "catalog programs": ("catalog programs", "catalog programs megatron-core"),
    "catalog terms": ("catalog terms", "catalog terms bubble"),
    "catalog lessons": ("catalog lessons", "catalog lessons pipeline"),
    "calc roofline": ("calc roofline h100", "calc roofline dgx-h100:1024 --tp 8 --pp 8 --ffn 16k"),
    "calc mfu": ("calc mfu llama-65b --tps 380 --on a100-80",
                 "calc mfu gpt-3-175b --tokens 300B --gpus 1024 --time '35 d' --on a100-80"),
    "calc batch": ("calc batch --global 2048 --seq 4096 --dp 64 --micro 2",
                   "calc batch --global 2048 --seq 4096 --gpus 1024 --tp 8"),
    "calc pipeline": ("calc pipeline", "calc pipeline --stages 4 --micro 8 --order 1f1b"),
    "calc power": ("calc power --gpus 50,000 --watts '350 W' --time '60 d'",
                   "calc power --gpus 16k --watts h100 --time '54 d' --pue 1.2 --kwh 0.08"),
    "calc loss": ("calc loss 2.0,1.0,0.1", "calc loss 2.0,1.0,0.1 --label 2"),
    "calc compress": ("calc compress 0.6,1.0 --with random_quantization --set levels=5",
                      "calc compress 3,-1,0.5,2 --with top_k --set ratio=0.5 --draws 1"),
    "export": ("export llama-3-8b --on 8xh100 --tp 2 --to megatron",
               "export llama-3-8b --on 8xh100 --zero 3 --to torchtitan --out launch"),
    "check": ("check train.sh --model llama-3-8b --on 8xh100",
              "check ds_config.json --model llama-3-8b --on 8xh100 --fix"),
    "place": ("place llama-3-8b --on dgx-h100:64 --tp 8 --topology topology.conf --free 'node[001-016]'",
              "place plan.json --topology nodes.csv --free idle.txt --out launch"),
    "serve": ("serve --port 0", "serve --export page --case '#/policy?model=llama-3-8b&on=8xh100&zero=3'"),
    "calc": ("calc batch --global 2048 --seq 4096 --gpus 1024 --tp 8", "calc roofline dgx-h100:1024 --ffn 16k"),
    "catalog": ("catalog", "catalog models llama-3-70b"),
    "mcp": ("mcp --list", "mcp --list --json"),
    "why": ("why train.log --model llama-3-8b --on 8xh100 --zero 3", "why runs/a --checkpoints out/checkpoints"),
    "watch": ("watch runs/a --once", "watch train.log --once --model llama-3-8b --on 8xh100 --zero 3"),
}  # fmt: skip
FIRST = ("plan llama-3-70b --on dgx-h100:1024", "estimate llama-3-8b --on 8xh100 --zero 3")
"""of shardwise itself"""
OWN_APP = ("fabric", *WORDS)
"""verbs with sub-commands, whose modules show their examples themselves"""
EVERY_VERB = (
    "Every verb:",
    "  --html FILE.html  the same as one page with figures; opens offline",
    "  --schema  the JSON Schema of its --json",
)
ITSELF = "\n\nCompletion of verbs and options: shardwise --completion bash|zsh|fish"
ALSO = {
    "size": "  --max sequence|batch|model MODEL  the largest that fits, and its options",
    "verify": "  SCRIPT.py PLAN  your own model, split, against one process",
    "why": "  FOLDER  a whole run: what came first, what is lost, how to go on",
}
"""the other question of a verb, which has options of its own"""


def epilogue(examples: tuple[str, str], verb: str = "", *, paged: bool = False) -> str:
    """`paged`: the verb takes `--html`, which the frame reads and cyclopts does not know."""
    more = [*EVERY_VERB, ""] if paged else []
    if verb in ALSO:
        more += ["Also, with `--help` after it:", ALSO[verb], ""]
    return "\n".join([*more, "Examples:", *(f"  shardwise {each}" for each in examples)])
