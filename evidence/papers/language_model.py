"""A small language model through the project's own trainer, on four gloo ranks.

The trainer is started as a process of its own, as `shardwise run --sync` starts it; this package knows nothing of it.
"""

import json
import subprocess
import tempfile
from pathlib import Path

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell
from shardwise.interpreter import python_command, python_environment

RANKS, WINDOW = 4, 10
MODEL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
METHODS = {
    "psgd": "", "dsgd, one-peer": "dsgd", "diloco, every 10": "diloco,every=10",
    "mem_sgd, Top-K of 5 %": "mem_sgd,compressor=top_k,compressor.ratio=0.05",
}  # fmt: skip
WITH_MUON = {"psgd, Muon": "", "diloco, every 10, Muon": "diloco,every=10"}
RATE = 5e-3


def _losses(steps: int, optimizer: str, methods: dict[str, str]) -> dict[str, list[float]]:
    """The mean loss of the workers before each step, by method."""
    with tempfile.TemporaryDirectory(prefix="shardwise-sync-") as folder:
        model, asked = Path(folder) / "small.json", Path(folder) / "asked.json"
        model.write_text(json.dumps(MODEL), encoding="utf-8")
        order = {"model": str(model), "ranks": RANKS, "seq": 64, "global_batch": 16, "steps": steps,
                 "optimizer": optimizer, "rates": dict.fromkeys(methods.values(), RATE)}  # fmt: skip
        asked.write_text(json.dumps(order), encoding="utf-8")
        done = subprocess.run(
            python_command("shardwise.run.runtime.train.curves", str(asked)), capture_output=True, text=True,
            check=False, env=python_environment(OMP_NUM_THREADS="1"),
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the trainer failed: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    found = json.loads(done.stdout)
    return {name: [float(loss) for loss in found[sync]] for name, sync in methods.items()}


def run(quick: bool, tell: Tell) -> Result:
    steps = 30 if quick else 200
    tell(0, 2)
    found = _losses(steps, "adamw", METHODS)
    tell(1, 2)
    matrix = _losses(steps, "muon", WITH_MUON)
    end = {name: sum(losses[-WINDOW:]) / WINDOW for name, losses in found.items()}
    first, base = found["psgd"][0], end["psgd"]
    others = [name for name in end if name != "psgd"]
    ends = {name: sum(losses[-WINDOW:]) / WINDOW for name, losses in matrix.items()}
    mean, local = ends.values()
    checks = [
        Check("all start at the same loss", all(abs(losses[0] - first) < 1e-3 for losses in found.values())),
        Check("PSGD ends lowest", all(base < end[name] for name in others)),
        *(Check(f"{name} learns half of what PSGD does, or more", first - end[name] > 0.5 * (first - base))
          for name in others),
        Check("Muon ends below AdamW, with one mean gradient and with workers that average rarely",
              mean < base and local < end["diloco, every 10"]),
    ]  # fmt: skip
    if not quick:
        checks.append(Check("DSGD ends nearer to PSGD than MEM-SGD, whose sparse gradients do not suit AdamW",
                            end["dsgd, one-peer"] < end["mem_sgd, Top-K of 5 %"]))  # fmt: skip
    return Result(
        title=f"a language model of 110,000 parameters, {RANKS} gloo ranks of the trainer, {steps} steps",
        heads=("method", "loss at the end", "over psgd"),
        rows=tuple((name, f"{loss:.4f}", f"{loss - base:+.4f}") for name, loss in (end | ends).items()),
        checks=tuple(checks),
        series=tuple(ResultSeries(name, tuple((float(t), _smooth(losses, t)) for t in range(len(losses))))
                     for name, losses in (found | matrix).items()),
        x_title="steps", y_title="loss", log_x=False, log_y=False,
        notes=(f"two layers of width 64, sequences of 64 bytes of the built-in corpus, AdamW with rate {RATE:g} along "
               "a cosine, the same for all; Muon at the same rate, stretched to AdamW's step, on hidden matrices",
               f"mean of the last {WINDOW} steps; one seed"),
    )  # fmt: skip


def _smooth(losses: list[float], t: int) -> float:
    near = losses[max(t - 4, 0) : t + 5]
    return sum(near) / len(near)


REPRODUCTION = Reproduction(
    name="language_model",
    question="How does a language model learn with less traffic?",
    source="Ying et al. 2021, arXiv:2110.13363; Douillard et al. 2023, arXiv:2311.08105; Stich et al. 2018, "
    "arXiv:1809.07599; Jordan 2024, kellerjordan.github.io/posts/muon",
    run=run,
)
