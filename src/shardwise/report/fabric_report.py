"""What one training step does to the network: links, matrix, bottleneck, load over time, phases, orders of ranks."""

from msgspec import Struct

from shardwise.fabric.part_prices import Bill
from shardwise.fabric.wiring import Wiring
from shardwise.spec.policy import Policy


class LinkLoad(Struct, frozen=True, kw_only=True):
    """Links that carry the same in a step are one row."""

    name: str
    """of one of them"""
    tier: str
    count: int
    bytes_per_s: float
    """what one of them can carry"""
    step_bytes: float
    axes_bytes: dict[str, float]
    share: float
    """of its capacity over the whole step"""
    peak_share: float
    """in its fullest moment"""


class TierLoad(Struct, frozen=True, kw_only=True):
    tier: str
    links: int
    bytes_per_s: float
    mean_share: float
    """of all links of the tier over the whole step"""
    busiest: LinkLoad
    series: tuple[float, ...]
    """share of the busiest link's capacity in each equal part of the step"""
    mean_series: tuple[float, ...]


class CallLoad(Struct, frozen=True, kw_only=True):
    axis: str
    op: str
    algorithm: str
    ranks: int
    bytes: float
    times: float
    """for an average GPU"""
    seconds: float
    """of one, on the link graph"""
    least_s: float
    """less than `seconds` where more flows differ than the event loop takes: the truth lies between"""
    closed_form_s: float
    bottleneck: str | None


class Bottleneck(Struct, frozen=True, kw_only=True):
    link: str
    tier: str
    axis: str
    """the kind of parallelism that sends most over it"""
    share: float
    why: str


class Phase(Struct, frozen=True, kw_only=True):
    """A part of the training loop as the GPU and as the network see it."""

    phase: str
    gpu_s: float
    """of an average GPU in one step"""
    gpu: str
    network_share: float | None
    """of the cards' capacity while it runs, on average"""
    network: str


class Burst(Struct, frozen=True, kw_only=True):
    """The synchronisation of gradients as a card sees it."""

    start_s: float
    end_s: float
    bytes: float
    """sent by one card"""
    peak_share: float
    mean_share: float
    """of the whole step: what an average hides"""
    series: tuple[float, ...]
    """the busiest card around the burst: share of its capacity from `from_s` to `to_s`"""
    from_s: float
    to_s: float


class OrderLoad(Struct, frozen=True, kw_only=True):
    axes: str
    deal: str
    ring: str
    communication_s: float
    """of a step before overlap"""
    times_planned: float
    rail_bytes: float
    """that change their rail between nodes"""
    leaf_bytes: float
    """that leave their group of leaves"""


class FabricReport(Struct, frozen=True, kw_only=True):
    tier: str
    model: str
    cluster: str
    gpus: int
    stack: str
    policy: Policy
    wiring: Wiring
    placement: OrderLoad
    fits: bool
    """into the GPUs' memory, by the closed form"""
    step_s: float
    """at flow level: all traffic on the links at once"""
    unshared_s: float
    """the same with every kind of traffic alone on the links"""
    simulated_s: float
    """the simulator's, with the closed form's network"""
    closed_form_step_s: float
    slowed_s: dict[str, dict[str, float]]
    """axis -> axis that slows it -> seconds of its traffic an average rank loses by sharing links"""
    communication_s: dict[str, float]
    """by axis, on the link graph, before overlap"""
    closed_form_s: dict[str, float]
    switches: dict[str, int]
    calls: tuple[CallLoad, ...]
    links_total: int
    credits: bool
    """whether its switches grant credits, as InfiniBand's, so that there are no pauses and no drops to choose"""
    links: tuple[LinkLoad, ...]
    """the 200 fullest kinds of them"""
    tiers: tuple[TierLoad, ...]
    blocks: tuple[str, ...]
    matrix_bytes: dict[str, list[list[float]]]
    """axis -> from block -> to block, in one step"""
    crossing_bytes: dict[str, dict[str, float]]
    bottleneck: Bottleneck | None
    bin_s: float
    burst: Burst | None
    phases: tuple[Phase, ...]
    orders: tuple[OrderLoad, ...]
    assumptions: tuple[str, ...]


class FabricOption(Struct, frozen=True, kw_only=True):
    """A fabric the same job could have, and what it costs there."""

    card_bytes_per_s: float
    oversubscription: float
    """of every level above the leaves"""
    rails: str
    domain_gpus: int
    ports_per_gpu: float
    usd_per_gpu: float
    bill: Bill
    policy: Policy
    """the best of those tried on this fabric"""
    step_s: float
    """closed form, and what collectives gain on the link graph, all of it waited for"""
    mfu: float
    below_best: float
    """share of the best MFU that is lost"""
    joint_step_s: float | None = None
    """by the joint loop, of those that are cheapest"""


class MapRow(Struct, frozen=True, kw_only=True):
    """Switches of one tier, or nodes; from a long row every so manyth."""

    name: str
    shown: tuple[int, ...]
    """their numbers"""
    shares: tuple[float, ...]
    """of the step, of each one's busiest link"""
    total: int


class MapLink(Struct, frozen=True, kw_only=True):
    """All links between two boxes of neighbouring rows: the busiest of them."""

    row: int
    """number of the upper row"""
    upper: int
    lower: int
    """places among those shown"""
    share: float


class FabricMap(Struct, frozen=True, kw_only=True):
    """A tree of switches with what they carry, as shares of the step."""

    rows: tuple[MapRow, ...]
    """from the top"""
    links: tuple[MapLink, ...]
    most: float
    busiest: str
    """in words"""
