"""What an optimizer must say about itself: state, work and messages by tensor, names in training programs, how it runs.

Planner, launch files, checkpoints and the runtime ask these questions and know no optimizer by name. A rule that treats
every element alike (Adam, SGD) states two numbers; one whose state or work depends on a tensor's kind and shape sets
`by_shape` and answers for the pieces that a rank holds. Scalars and arrays go in and come out alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

Elements = float | NDArray[np.float64]
TensorKind = Literal["table", "matrix", "vector"]
"""table: embeddings and the head's logits; matrix: every other tensor of two dimensions, each expert's by itself;
vector: norms, biases and what has neither one nor two dimensions"""
KINDS: tuple[TensorKind, ...] = ("table", "matrix", "vector")
Exchange = Literal["none", "gather", "owned", "all-to-all"]
"""how ranks that share a tensor update it: each its piece; each all of it, gathered; one of them, whose it is; or one
to which the others send their pieces, and which sends them back"""
EXCHANGES: tuple[Exchange, ...] = ("none", "gather", "owned", "all-to-all")
NONE_BY_STAGE: tuple[Exchange, Exchange, Exchange, Exchange] = ("none", "none", "none", "none")


class TensorPieces(NamedTuple):
    """Equal pieces that a rank holds of one tensor, or of a stack of experts."""

    kind: TensorKind
    number: Elements
    rows: Elements
    """outputs of a matrix"""
    columns: Elements

    @property
    def elements(self) -> Elements:
        return self.number * self.rows * self.columns


class UpdateGemm(NamedTuple):
    """m x k by k x n, so many times for one matrix."""

    m: float
    n: float
    k: float
    times: float
    adds: bool = False
    """to a matrix that torch copies first, so that the kernel can write over it"""


class UpdateFactoring(NamedTuple):
    """A decomposition of one factor in fp32."""

    kind: Literal["qr", "eigh"]
    side: float
    times: float
    """a step, for one matrix"""


class TokenSaving(NamedTuple):
    """A published comparison with AdamW, each at its own best settings."""

    share: float
    """of the tokens that AdamW needs to the same loss, fewer"""
    where: str
    source: str


class Recipe(Protocol):
    """Bytes per parameter of a precision."""

    @property
    def param_bytes(self) -> float: ...

    @property
    def grad_bytes(self) -> float: ...

    @property
    def master_bytes(self) -> float: ...

    @property
    def moment_bytes(self) -> float: ...


class RunSettings(Protocol):
    """Numbers of a real run."""

    @property
    def betas(self) -> tuple[float, float]: ...

    @property
    def epsilon(self) -> float: ...

    @property
    def momentum(self) -> float: ...

    @property
    def nesterov(self) -> bool: ...


@dataclass(frozen=True)
class UpdateRule:
    name: ClassVar[str]
    summary: ClassVar[str]
    moments: ClassVar[float] = 0.0
    """elements kept for one that is updated, each of the precision's moment_bytes"""
    extra_bytes: ClassVar[float] = 0.0
    """bytes kept for an element that do not follow the precision"""
    rest: ClassVar[str] = ""
    """the optimizer of tensors that this one does not cover"""
    by_shape: ClassVar[bool] = False
    """state, work or messages depend on a tensor's kind and shape"""
    exchanges: ClassVar[tuple[Exchange, Exchange, Exchange, Exchange]] = NONE_BY_STAGE
    """for tensors that stages 0 to 3 of ZeRO shard"""
    layouts: ClassVar[tuple[str, ...]] = ()
    """that a policy may ask for instead (policy.MATRIX_LAYOUT)"""
    exchange_cut: ClassVar[Exchange] = "none"
    """for matrices that tensor parallelism cuts"""
    sent_bytes: ClassVar[float] = 2.0
    """of an element in those messages"""
    passes_bytes: ClassVar[float] = 0.0
    """moved for an element besides its gradient, weight and state, each of which is read and written once"""
    product_dtype: ClassVar[str] = "bf16"
    """of the products"""
    launches: ClassVar[float] = 0.0
    """kernels that the host launches for one covered matrix, beyond those of an element-wise update"""
    adaptive: ClassVar[bool] = False
    """steps have the size of Adam's: its usual learning rate and warm-up serve"""
    steps_like: ClassVar[tuple[str, ...]] = ("adamw",)
    """optimizers whose measured numbers of steps stand for this one's"""
    saves: ClassVar[tuple[TokenSaving, ...]] = ()
    assumed: ClassVar[str] = ""
    """what is taken for granted, as an answer says it"""
    spelled: ClassVar[Mapping[str, str]] = {}
    """training program -> its name there; further words are other names that are read"""
    refused: ClassVar[str] = ""
    """why `run` cannot, and what to write instead; empty: it can"""
    kept: ClassVar[tuple[str, ...]] = ()
    """names of its moments in checkpoints, each in a tensor's shape"""
    decoupled: ClassVar[bool] = False
    """weights decay by themselves, not through the gradient"""
    factored: ClassVar[bool] = False
    """keeps means of rows and columns, which ranks that share a tensor add up"""
    rounds_moments: ClassVar[bool] = False
    """keeps moments in another form than a checkpoint has"""
    fuses: ClassVar[bool] = False
    """torch has it as one kernel, which divides gradients too"""

    def covers(self, kind: TensorKind) -> bool:  # noqa: ARG002
        return True

    def element_bytes(self, moment_bytes: float) -> float:
        """State of one element, where all are alike."""
        return self.moments * moment_bytes + self.extra_bytes

    def state_bytes(self, held: TensorPieces, moment_bytes: float) -> Elements:
        """State of covered pieces, before ZeRO shards it."""
        return held.elements * self.element_bytes(moment_bytes)

    def moved_bytes(self, recipe: Recipe) -> float:
        """Read and written to update one element, where all are alike."""
        return moved_besides_state(recipe) + self.passes_bytes + 2.0 * self.element_bytes(recipe.moment_bytes)

    @property
    def bound_by(self) -> str:
        """What its kernels wait for."""
        return "products" if self.products(4096, 4096) else "memory"

    def products(self, rows: float, columns: float) -> Sequence[UpdateGemm]:  # noqa: ARG002
        """In `product_dtype`, to update one whole matrix."""
        return ()

    def factorings(self, rows: float, columns: float) -> Sequence[UpdateFactoring]:  # noqa: ARG002
        """To update one whole matrix."""
        return ()

    def factor_bytes(self, rows: float, columns: float, moment_bytes: float) -> float:  # noqa: ARG002
        """Kept for one matrix (or piece of it) by each rank that computes it, besides the state of its elements."""
        return 0.0

    def scratch_bytes(self, rows: float, columns: float) -> float:  # noqa: ARG002
        """Held while one whole matrix is updated."""
        return 0.0

    @property
    def by_tensor(self) -> bool:
        """It computes with whole tensors, wherever their pieces lie."""
        return bool(self.layouts)

    @property
    def takes_single(self) -> bool:
        """`run` gives it every tensor by itself."""
        return self.by_tensor or self.factored or self.rounds_moments

    def lies_apart(self, kind: TensorKind) -> bool:
        """In a buffer by itself, so that ZeRO cuts its state evenly too."""
        return self.covers(kind) and (self.by_tensor or (self.factored and kind != "vector"))

    def kept_of(self, kind: TensorKind) -> tuple[str, ...]:  # noqa: ARG002
        """Names of moments in the shape of such a tensor."""
        return self.kept

    @property
    def keeps_state(self) -> bool:
        return bool(self.moments or self.extra_bytes or self.by_shape)

    def looks_ahead(self, settings: RunSettings) -> bool:  # noqa: ARG002
        """Whether there is a momentum for Nesterov's step."""
        return False

    def stored(self, rows: int, columns: int) -> Mapping[str, tuple[int, ...]]:  # noqa: ARG002
        """Names and shapes of what ranks that compute with a whole matrix keep of it, besides its moments."""
        return {}

    def stretch(self, rows: int, columns: int) -> float:  # noqa: ARG002
        """What a matrix' rate is multiplied by."""
        return 1.0

    def sent(self, grad: "Tensor", moment: "Tensor", settings: RunSettings) -> "Tensor":  # noqa: ARG002
        """Of a rank's own elements, what the direction of a whole matrix is computed from."""
        return grad

    def direction(
        self,
        whole: "Tensor",  # noqa: ARG002
        state: "dict[str, Tensor]",  # noqa: ARG002
        step: int,  # noqa: ARG002
        settings: RunSettings,  # noqa: ARG002
    ) -> "Tensor":
        """Of a whole matrix, from what its ranks `sent` and what is `stored`; step 1 is the first."""
        raise ValueError(f"optimizer: {self.name!r} has no direction of whole matrices")

    def make(self, tensors: "list[Tensor]", settings: RunSettings, **options: Any) -> "Optimizer":  # noqa: ARG002
        """torch's optimizer; `options`: weight_decay, and fused or foreach."""
        raise ValueError(f"optimizer: {self.name!r} cannot be run; {self.refused}")


def moved_besides_state(recipe: Recipe) -> float:
    """The gradient is read, the weight in its widest precision read and written, its narrow copy written."""
    widest = recipe.master_bytes or recipe.param_bytes
    return recipe.grad_bytes + 2 * widest + (recipe.param_bytes if recipe.master_bytes else 0.0)
