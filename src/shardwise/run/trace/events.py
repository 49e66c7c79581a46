"""What a traced step is made of: operators and messages in the order they were called. No seconds here."""

from dataclasses import dataclass, field

PHASES = ("forward", "recompute", "backward", "optimizer")
KINDS = ("parameters", "gradients", "optimizer", "gathered", "activations", "working", "other")
"""of memory; gathered: FSDP's whole weights, whole gradients and message buffers; working: made by the backward pass
or the optimizer and soon freed; other: made before the step (batch, tables)"""
COPIES = "copies"
"""scope of what DistributedDataParallel's reducer copies"""


class TensorStorage:
    """One storage: bytes that live and die together."""

    __slots__ = ("compiled", "kind", "returned", "size")

    def __init__(self, kind: str, size: int) -> None:
        self.kind, self.size = kind, size
        self.compiled = 0
        """by which call of what torch.compile was asked for it was made, counted from 1; 0: by none"""
        self.returned = 0
        """by that, with a gradient to come: events before it was; 0 where it was not"""


@dataclass(frozen=True, slots=True)
class Product:
    """[m, k] x [k, n], `batch` times."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    rows: tuple[float, ...]
    """how far neighbouring rows of the two factors and of the result lie apart, in elements of 2 bytes"""
    grouped: str = ""
    """experts' products in one kernel: 'tokens', or 'weights' for the gradient of their weights"""

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """A fused kernel; `flops` as it computes them (half the square when causal)."""

    flops: float
    square_flops: float
    keys: int
    head_dim: int
    groups: int
    """batch x heads"""
    backward: bool
    dtype: str
    causal: bool = True
    queries: int = 0
    """as many as keys where it is 0"""
    masked: bool = False
    """an explicit mask or bias is added to the scores"""
    drops: bool = False
    """a part of the scores is dropped at random"""
    trains_bias: bool = False
    """torch's own kernel in 16 bits, the one that gives the gradient of a bias"""


@dataclass(frozen=True, slots=True)
class Convolution:
    """One kernel of a convolution: its forward, or the gradient of its input or of its weights."""

    part: str
    """'forward', 'input' or 'weight'"""
    kind: str
    """'dense', 'few_channels', 'grouped' or 'depthwise'"""
    places: int
    """of all rows, at which filters are applied"""
    reached: int
    """places of the input"""
    taps: int
    """places a filter covers"""
    channels: int
    filters: int
    groups: int
    dtype: str
    last: bool
    """channels lie next to each other"""
    bytes: int
    turned_bytes: int = 0
    """moved to bring inputs and outputs into the kernel's layout and back"""
    turned_weight_bytes: int = 0

    @property
    def macs(self) -> int:
        return self.places * self.taps * self.filters * (self.channels // self.groups)

    @property
    def flops(self) -> float:
        return 2.0 * self.macs


@dataclass(frozen=True, slots=True)
class Pass:
    """Bytes read and written besides products and attention."""

    bytes: int
    kind: str = "stream"
    """the way they are moved, by a name of `rates.py`"""
    elements: int = 0
    """gone through one by one, where the kernel's instructions count"""
    wait_s: float = 0.0
    """in which blocks of the kernel wait for each other, on the GPU measured"""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The ranks a message runs over."""

    name: str
    """the mesh axis, or 'world', or torch's own name"""
    size: int
    stride: int
    even: bool
    """neighbours are all `stride` ranks apart"""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    op: str
    bytes: int
    """the whole buffer of an all-reduce, the output of an all-gather, the input of a reduce-scatter or all-to-all"""
    dtype: str
    group: ProcessGroup
    waited: bool
    """the stream it was called on goes on when it is done"""
    peer: int = -1
    """the other rank of a send or receive"""


Touched = tuple[TensorStorage, int]
"""a storage, and the bytes of the tensor in it that an operator read or wrote"""


@dataclass(slots=True)
class StepEvent:
    name: str
    phase: str
    work: Product | Convolution | AttentionCall | Pass | CollectiveCall
    scope: str
    """FSDP's own label around it, `COPIES`, or empty"""
    reads: tuple[Touched, ...]
    writes: tuple[Touched, ...]
    at: int
    """how many changes of memory came before"""
    calls: int
    """operators the host called since the event before, views and this one included"""
    read_by_host: bool = False
    """the host waits for what it gives: a number, or how many elements there are"""
    compiled: int = 0
    """in which call of what torch.compile was asked for it is, counted from 1; backward: whose results it reads; 0: in
    none"""
    quiet: int = 0
    """of the calls, those that neither run a kernel nor make a view"""
    python: tuple[int, int] = (0, 0)
    """functions of Python's own, and built-in ones, that the script called since the event before"""

    @property
    def is_message(self) -> bool:
        return isinstance(self.work, CollectiveCall)


@dataclass
class Capture:
    """One rank's step."""

    rank: int
    world: int
    events: list[StepEvent] = field(default_factory=list)
    changes: list[tuple[TensorStorage, int]] = field(default_factory=list)
    """of memory, in order; the first ones are what was there when the step began"""
    tokens: int = 0
    """elements of the largest integer tensor of the batch: tokens of a language model; 0 when there is none"""
    samples: int = 0
    """length of the first axis of the batch"""
    numbers_read: int = 0
    """values asked of tensors that have none: each was given as 1.0"""
    compiled: bool = False
    """torch.compile was asked for"""
    tf32: bool = False

    @property
    def messages(self) -> list[tuple[StepEvent, CollectiveCall]]:
        return [(event, event.work) for event in self.events if isinstance(event.work, CollectiveCall)]
