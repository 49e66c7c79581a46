"""What is trained: batch, sequence, precision, optimizer, tokens. A Job never knows degrees."""

from msgspec import Struct
from msgspec.structs import replace

from shardwise.plugins.optimizers import USUAL, UpdateRule, update_rule
from shardwise.registry import closest
from shardwise.spec.model import Model
from shardwise.spec.tuning import Tuning

MOST_ASSUMED = 8192
"""tokens of a sequence where nobody states it: models with longer positions are trained at this length or below for
nearly all of their tokens, and stretched at the end"""
USUAL_FAILURES = "llama-3"
"""the published rate whose causes are known best"""
NO_FAILURES = "off"


class Precision(Struct, frozen=True, kw_only=True):
    """Bytes per parameter of everything kept, and the dtypes of compute and communication."""

    name: str
    compute: str
    """dtype of the matrix products: fp32, tf32, fp16, bf16, fp8, fp4"""
    param_bytes: float
    """the weights the forward pass reads"""
    grad_bytes: float
    """the gradient buffer that accumulates over micro-batches"""
    master_bytes: float
    """a separate full-precision copy the optimizer updates; 0 when the weights themselves are it"""
    moment_bytes: float
    """one optimizer moment"""
    act_bytes: float
    """one saved activation element of a matrix product's input"""
    grad_comm_bytes: float
    param_comm_bytes: float
    cast_bytes: float = 0.0
    """a lower-precision copy of the weights that lives through the step (autocast cache, fp8 copies)"""
    residual_bytes: float = 2.0
    """one element of the residual stream and of what norms save"""
    scaling: str = "tensor"
    """what shares one scale in 8 bits: a whole tensor; a `row` along the dimension a product sums over; a `block` of
    128, with kernels of its own; or 32 numbers of a row (`mx`)"""
    rounds_again: bool = False
    """operands are kept in 16 bits and rounded anew in the backward, weights for every micro-batch too: what torchao's
    linear layers save (torchao/float8/float8_linear.py, matmul_with_hp_or_float8_args)"""

    @property
    def rounds_each_way(self) -> bool:
        """An operand of two products is rounded in a pass of its own for each of them. TransformerEngine writes blocks
        and mxfp8 both ways round in one pass; torchao does not (mx_formats/mx_linear.py)."""
        return self.scaling == "row" or (self.scaling == "mx" and self.rounds_again)

    @property
    def kernels(self) -> str:
        """The format whose kernel rates its products run at."""
        return "fp8-block" if self.compute == "fp8" and self.scaling == "block" else self.compute

    @property
    def rounds_weights_once(self) -> bool:
        """Narrow copies of 16-bit weights are made once a step and serve all its micro-batches."""
        return self.compute in ("fp8", "fp4") and self.cast_bytes > 0 and self.param_bytes < 4

    @property
    def cast_traffic(self) -> float:
        """Bytes moved per parameter and micro-batch to round fp32 weights before use and widen gradients after it."""
        wide = self.cast_bytes > 0 and self.param_bytes >= 4
        return 2.0 * (self.param_bytes + self.cast_bytes) if wide else 0.0


def _precision(
    name: str, compute: str, *, scaling: str = "tensor", rounds_again: bool = False, **bytes_: float
) -> Precision:
    base = {
        "param_bytes": 2, "grad_bytes": 4, "master_bytes": 4, "moment_bytes": 4, "act_bytes": 2,
        "grad_comm_bytes": 4, "param_comm_bytes": 2,
    }  # fmt: skip
    return Precision(name=name, compute=compute, scaling=scaling, rounds_again=rounds_again, **{**base, **bytes_})


PRECISIONS: dict[str, Precision] = {
    p.name: p
    for p in (
        _precision("bf16", "bf16"),
        _precision("bf16-grad16", "bf16", grad_bytes=2, grad_comm_bytes=2),
        _precision("bf16-grad16-reduce32", "bf16", grad_bytes=2),
        _precision("bf16-comm16", "bf16", grad_comm_bytes=2),
        _precision("bf16-moments16", "bf16", grad_bytes=2, grad_comm_bytes=2, moment_bytes=2),
        _precision("fp16", "fp16", grad_bytes=2, grad_comm_bytes=2),
        _precision("fp16-grad32", "fp16"),
        _precision("bf16-deepspeed", "bf16", grad_bytes=6),
        _precision("bf16-pure", "bf16", grad_bytes=2, master_bytes=0, moment_bytes=2, grad_comm_bytes=2),
        _precision("bf16-pure-reduce32", "bf16", grad_bytes=2, master_bytes=0, moment_bytes=2),
        _precision(
            "autocast", "bf16", param_bytes=4, master_bytes=0, cast_bytes=2, residual_bytes=4, param_comm_bytes=4
        ),
        _precision("fsdp-mixed", "bf16", param_bytes=4, master_bytes=0, grad_bytes=4, grad_comm_bytes=2),
        _precision("fsdp-mixed-reduce32", "bf16", param_bytes=4, master_bytes=0),
        _precision("fsdp-fp8-reduce32", "fp8", rounds_again=True, param_bytes=4, master_bytes=0, param_comm_bytes=1),
        _precision("fsdp-fp8-rowwise", "fp8", scaling="row", rounds_again=True, param_bytes=4, master_bytes=0),
        _precision("fp8", "fp8", grad_comm_bytes=2, act_bytes=1, cast_bytes=1),
        _precision("fp8-rowwise", "fp8", scaling="row", grad_comm_bytes=2, act_bytes=1, cast_bytes=1),
        _precision("fp4", "fp4", grad_comm_bytes=2, act_bytes=1, cast_bytes=1),
        _precision("fp8-grad16", "fp8", grad_bytes=2, grad_comm_bytes=2, act_bytes=1, cast_bytes=1),
        _precision("fp8-moments16", "fp8", grad_bytes=2, grad_comm_bytes=2, act_bytes=1, cast_bytes=1, moment_bytes=2),
        _precision("fp4-grad16", "fp4", grad_bytes=2, grad_comm_bytes=2, act_bytes=1, cast_bytes=1),
        _precision("fp8-grad32", "fp8", act_bytes=1, cast_bytes=1),
        _precision("fp4-grad32", "fp4", act_bytes=1, cast_bytes=1),
        _precision(
            "fp8-pure",
            "fp8",
            grad_bytes=2,
            master_bytes=0,
            moment_bytes=2,
            grad_comm_bytes=2,
            act_bytes=1,
            cast_bytes=1,
        ),
        _precision("fp8-pure-reduce32", "fp8", grad_bytes=2, master_bytes=0, moment_bytes=2, act_bytes=1, cast_bytes=1),
        _precision("tf32", "tf32", param_bytes=4, master_bytes=0, act_bytes=4, param_comm_bytes=4, residual_bytes=4),
        _precision("fp32", "fp32", param_bytes=4, master_bytes=0, act_bytes=4, param_comm_bytes=4, residual_bytes=4),
    )
}


SCALED = {"row": "fp8-rowwise", "block": "fp8-blockwise", "mx": "mxfp8"}
"""how the name of a recipe says what shares a scale; a tensor's is fp8"""


def with_scaling(precision: Precision, scaling: str) -> Precision:
    """The recipe in 8 bits with another kind of scale. torchao gathers weights in 8 bits only where all of a tensor
    shares one."""
    gathered = max(precision.param_comm_bytes, 2.0) if precision.rounds_again else precision.param_comm_bytes
    changed = replace(precision, scaling=scaling, param_comm_bytes=gathered)
    for known in PRECISIONS.values():
        if replace(changed, name=known.name) == known:
            return known
    plain = precision.name.replace(SCALED.get(precision.scaling, "fp8"), "fp8", 1)
    return replace(changed, name=plain.replace("fp8", SCALED[scaling], 1))


GRAD_DTYPES = {"bf16": 2.0, "fp32": 4.0}
"""bytes of a gradient by the dtype it is added up and reduced in"""
_GRAD_NAMES = {2.0: "grad16", 4.0: "grad32"}


def with_grad_dtype(precision: Precision, dtype: str) -> Precision:
    """The recipe with gradients in another dtype. Where weights are kept in fp32 and rounded for use (FSDP), so are
    their gradients: the dtype is then of what is reduced."""
    if dtype not in GRAD_DTYPES:
        raise ValueError(f"grad-dtype: {dtype!r} is unknown; write {' or '.join(GRAD_DTYPES)}")
    bytes_ = GRAD_DTYPES[dtype]
    held = precision.grad_bytes if precision.param_bytes >= 4 else bytes_
    changed = replace(precision, grad_bytes=held, grad_comm_bytes=bytes_)
    for known in (precision, *PRECISIONS.values()):
        if replace(changed, name=known.name) == known:
            return known
    base = precision.name.removesuffix("-grad16").removesuffix("-grad32")
    return replace(changed, name=f"{base}-{_GRAD_NAMES[bytes_]}")


class Optimizer(Struct, frozen=True, kw_only=True):
    """The optimizer of a job, by the name of its file in optimizers/; the file says all the rest."""

    name: str

    @property
    def rule(self) -> UpdateRule:
        return update_rule(self.name)


class Job(Struct, frozen=True, kw_only=True):
    seq: int
    global_batch: int
    """sequences per optimizer step"""
    precision: Precision = PRECISIONS["bf16"]
    optimizer: Optimizer = Optimizer(name=USUAL)
    tokens: float = 0.0
    """tokens to train on in all; 0 when not stated"""
    uneven: bool = False
    """where the batch does not divide, some replicas take one micro-batch more than others, who wait for them"""
    pipeline_passes: int = 1
    """times a step fills and drains its pipeline, each with an equal part of the batch: programs whose schedule takes
    one local batch run as many of these, one after the other, as make up the global one (torchtitan, NeMo Automodel)"""
    tuning: Tuning | None = None
    """what of the model is trained; None: all of it"""
    failures: str = USUAL_FAILURES
    """how often the whole run is stopped: a published rate, a count of one's own, or off"""

    def __post_init__(self) -> None:
        for field, most in (("seq", 10**8), ("global_batch", 10**9), ("pipeline_passes", 10**6)):
            value = getattr(self, field)
            if not 1 <= value <= most:
                raise ValueError(f"job: {field} is {value}; write a whole number from 1 to {most}")

    @property
    def step_tokens(self) -> int:
        return self.seq * self.global_batch


def usual_sequence(model: Model) -> int:
    """Tokens of a sequence where the job does not state them: what the model's positions reach, up to a limit."""
    if model.inputs == "features":
        return 1
    if model.sample_tokens:
        return model.sample_tokens
    return min(model.context, MOST_ASSUMED) if model.context else MOST_ASSUMED


def check_sequence(model: Model, seq: int) -> None:
    """A model whose inputs fix the tokens of a sample has no other ones."""
    if model.sample_tokens and seq != model.sample_tokens:
        raise ValueError(
            f"seq: {seq:,}, but every sample of {model.name} is {model.sample_tokens:,} tokens, patches and learned "
            f"ones; write {model.sample_tokens}, leave --seq away, or change image_size in its file"
        )


def precision_of(name: str) -> Precision:
    """A known recipe, or one whose name has its kind of scale and the dtype of its gradients: fp8-blockwise-grad32."""
    for scaling, word in SCALED.items():
        if name not in PRECISIONS and word in name:
            return with_scaling(precision_of(name.replace(word, "fp8", 1)), scaling)
    base, _, gradients = name.rpartition("-")
    if name not in PRECISIONS and base in PRECISIONS and gradients in _GRAD_NAMES.values():
        return with_grad_dtype(PRECISIONS[base], "bf16" if gradients == "grad16" else "fp32")
    if name not in PRECISIONS:
        known = dict.fromkeys((*PRECISIONS, *SCALED.values(), "nvfp4"))
        raise ValueError(f"precision: {name!r} is unknown; {closest(name, list(known))}")
    return PRECISIONS[name]


def usual_precision(model: Model) -> str:
    """The recipe a model is usually trained in: bf16, or fp32 where it reads single examples."""
    return "fp32" if model.inputs == "features" else "bf16"


def optimizer_of(name: str) -> Optimizer:
    return Optimizer(name=update_rule(name).name)
