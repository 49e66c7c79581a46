"""The flags of the training loop, as `run` takes them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from shardwise.question import PolicyQuestion
from shardwise.show.cli._shown import RARE

if TYPE_CHECKING:
    from shardwise.run.runtime.train.task import TrainingSettings

Files = tuple[str, ...]


@Parameter(name="*", show=RARE)
@dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    steps: Annotated[int, Parameter(show=True, help="Optimizer steps.")] = 10
    rate: Annotated[
        float | None,
        Parameter(show=True, help="Learning rate; default: for Adam 0.46 / the model's width, at most 1e-3."),
    ] = None
    warmup: Annotated[
        int | None, Parameter(help="Steps over which the rate rises; default: for Adam 40, at most half of all.")
    ] = None
    decay: Annotated[str, Parameter(help="constant, cosine, linear or wsd.")] = "constant"
    floor: Annotated[float, Parameter(help="What a decay leaves of the rate.")] = 0.1
    decay_steps: Annotated[int, Parameter(help="Last steps over which wsd decays; 0: a tenth of all.")] = 0
    beta1: Annotated[float, Parameter(help="Decay rate of Adam's first moment.")] = 0.9
    beta2: Annotated[float, Parameter(help="Decay rate of Adam's second moment.")] = 0.95
    epsilon: Annotated[float, Parameter(help="Added to Adam's denominator.")] = 1e-8
    weight_decay: Annotated[float, Parameter(help="Weight decay; 0: none.")] = 0.1
    decay_on: Annotated[str, Parameter(help="Weights that decay: all, or matrices (no norms, no biases).")] = "all"
    momentum: Annotated[float, Parameter(help="Momentum of sgd-m.")] = 0.9
    nesterov: Annotated[bool, Parameter(negative=(), help="Nesterov momentum for sgd-m.")] = False
    clip: Annotated[float, Parameter(help="Largest gradient norm; 0: none.")] = 1.0
    data: Annotated[
        Files,
        Parameter(
            show=True,
            consume_multiple=True,
            help="Text files, folders or patterns; default: a built-in corpus. A perceptron: a .npz.",
        ),
    ] = ()
    tokenizer: Annotated[str, Parameter(show=True, help="byte, a tokenizer.json, or a name `tokenizers` finds.")] = (
        "byte"
    )
    token_cache: Annotated[Path | None, Parameter(help="Folder of tokenized texts; default: ~/.cache.")] = None
    eval_every: Annotated[
        int | None, Parameter(help="Steps between evaluations; 0: none. Default: none; a perceptron: after the last.")
    ] = None
    eval_steps: Annotated[int, Parameter(help="Batches of an evaluation.")] = 4
    eval_data: Annotated[
        Files, Parameter(consume_multiple=True, help="Files to evaluate on; default: a twentieth of the data.")
    ] = ()
    # torchrun takes --log for a short form of two options of its own, wherever it stands
    log: Annotated[
        Path | None,
        Parameter(
            name=("--log", "--log-file"), help="Append one JSON object per step (under torchrun -m shardwise -- run)."
        ),
    ] = None
    records: Annotated[
        Path | None,
        Parameter(show=True, help="Folder in which each rank writes where its time went, for `watch` and `doctor`."),
    ] = None
    progress: Annotated[
        str, Parameter(help="On stderr: lines (one a step, a bar below on a terminal), bar (no lines) or none.")
    ] = "lines"
    tensorboard: Annotated[Path | None, Parameter(help="Folder for TensorBoard's event files.")] = None
    init: Annotated[
        Path | None, Parameter(help="Weights to begin with: a safetensors file, or a folder with an index.")
    ] = None
    export: Annotated[
        Path | None, Parameter(show=True, help="New folder for the trained weights, in Hugging Face's layout.")
    ] = None
    checkpoints: Annotated[
        Path | None, Parameter(show=True, help="Folder of checkpoints; a run resumes from the last.")
    ] = None
    every: Annotated[int, Parameter(help="Steps between checkpoints; 0: only after the last step.")] = 0
    async_checkpoints: Annotated[
        bool, Parameter(negative="--no-async-checkpoints", help="Train on while a checkpoint is written.")
    ] = True
    keep: Annotated[int, Parameter(help="Newest checkpoints to keep; 0: all.")] = 0
    force: Annotated[
        bool, Parameter(negative=(), help="Go on from a checkpoint of another model, data, batch, seed, ... too.")
    ] = False
    go_on_unsaved: Annotated[
        bool, Parameter(negative=(), help="Train on when a checkpoint cannot be written; default: stop.")
    ] = False
    timeout: Annotated[float, Parameter(help="Seconds a rank waits for the others.")] = 600.0
    peak_tflops: Annotated[float, Parameter(help="Of one device, for mfu; default: the planned GPU's on CUDA.")] = 0.0


DEFAULTS = TrainingFlags()


def settings_of(training: TrainingFlags, found: PolicyQuestion, device: str) -> "TrainingSettings":
    """Bad values are a ValueError that names the flag."""
    from shardwise.run.runtime.train.optimizer import OptimizerSettings
    from shardwise.run.runtime.train.rates import usual_rate, usual_warmup
    from shardwise.run.runtime.train.task import TrainingSettings

    t = training
    if not 0 <= t.peak_tflops < 1e9:
        raise ValueError(f"peak-tflops: {t.peak_tflops} is out of range; write TFLOP/s of one device, such as 989")
    classifies = found.model.inputs == "features"
    eval_every = (max(t.steps, 0) if classifies else 0) if t.eval_every is None else t.eval_every
    if t.eval_data and not eval_every:
        raise ValueError(f"eval-data: {t.eval_data[0]!r} is given but never evaluated; write --eval-every 100")
    peak = t.peak_tflops * 1e12
    if not peak and device == "cuda":
        peak = found.cluster.gpu.peak(found.job.precision.compute)
    optimizer = found.job.optimizer.name
    return TrainingSettings(
        steps=t.steps, rate=usual_rate(found.model, optimizer) if t.rate is None else t.rate,
        warmup=usual_warmup(optimizer, t.beta2, t.steps) if t.warmup is None else t.warmup,
        decay=t.decay, floor=t.floor, decay_steps=t.decay_steps,
        optimizer=OptimizerSettings(
            name=optimizer, betas=(t.beta1, t.beta2), epsilon=t.epsilon, weight_decay=t.weight_decay,
            decay_on=t.decay_on, momentum=t.momentum, nesterov=t.nesterov, clip=t.clip,
        ),
        data=t.data, tokenizer=t.tokenizer, token_cache=_text(t.token_cache),
        eval_every=eval_every, eval_steps=t.eval_steps, eval_data=t.eval_data,
        log=_text(t.log), records=_text(t.records), progress=t.progress, tensorboard=_text(t.tensorboard),
        init=_text(t.init), export=_text(t.export),
        checkpoints=_text(t.checkpoints), every=t.every, async_checkpoints=t.async_checkpoints,
        keep=t.keep, force=t.force, go_on_unsaved=t.go_on_unsaved,
        device=device, timeout_s=t.timeout, peak_flops_per_s=peak,
    )  # fmt: skip


def _text(path: Path | None) -> str:
    return "" if path is None else str(path.resolve())
