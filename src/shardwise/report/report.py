"""What is known about one policy, as plain numbers with their units in the names."""

from typing import Any

import msgspec
from msgspec import Struct

from shardwise.report.sync_report import SyncReport
from shardwise.spec.policy import Policy
from shardwise.units import share_text


class Stage(Struct, frozen=True, kw_only=True):
    """Memory of one GPU of one pipeline stage."""

    stage: int
    total_bytes: float
    kinds_bytes: dict[str, float]


class Money(Struct, frozen=True, kw_only=True):
    """What an amount of training takes; dollars are (low, high) rent, None where no price is published."""

    tokens: float
    seconds: float
    energy_j: float
    """of whole nodes"""
    usd: tuple[float, float] | None
    electricity_usd: float
    """of whole nodes, with what the site adds for network and cooling"""
    useful_share: float = 1.0
    """of the seconds, what goes into steps that are kept; the rest goes into failures, saves and restarts"""


class TuningFacts(Struct, frozen=True, kw_only=True):
    """What of the model is trained."""

    tune: str
    """as the flag has it"""
    freeze: str
    parameters: int
    """with those of adapters"""
    trained_parameters: int

    def __str__(self) -> str:
        how = "; ".join(filter(None, (self.tune, self.freeze and f"frozen {self.freeze}")))
        share = share_text(self.trained_parameters / self.parameters)
        return f"{how}: {self.trained_parameters:,} of {self.parameters:,} parameters are trained ({share})"


class Report(Struct, frozen=True, kw_only=True):
    tier: str
    """one of `report.tier`"""
    model: str
    cluster: str
    gpu: str
    gpus: int
    stack: str
    seq_tokens: int
    global_sequences: int
    step_tokens: int
    precision: str
    optimizer: str
    policy: Policy
    fits: bool
    verdict: str
    step_s: float
    error_band: float | None
    """the larger side of error_range"""
    error_range: tuple[float, float] | None
    """measured over predicted step time, less 1: 80 % of measured steps should lie between the two; None where no runs
    like it were measured"""
    error_basis: str
    """the same in words, with what supports it"""
    tokens_per_s_per_gpu: float
    peak_flops_per_s: float
    """of the compute dtype: what MFU and HFU are shares of"""
    mfu_causal_half: float
    """the MFU shown first"""
    mfu_full_square: float
    hfu: float
    """all that is executed: what is computed twice, and the masked half where attention is plain"""
    capacity_bytes: float
    peak_bytes: float
    reserve_bytes: float
    """kept free for the CUDA context, communication buffers and fragments"""
    free_bytes: float
    """what is left beside peak and reserve; below 0: it does not fit"""
    out_of_memory_chance: float
    """by how far measured peaks of published runs lie above predicted ones"""
    fullest_stage: int
    host_bytes: float
    host_limit_bytes: float
    """moved to the host by offloading, per GPU"""
    stages: tuple[Stage, ...]
    time_s: dict[str, float]
    """exposed seconds of a step by part; they add up to step_s"""
    hidden_s: dict[str, float]
    """communication that runs under compute, by axis"""
    micro_batches: int
    pipeline_passes: int
    """times the step fills and drains its pipeline"""
    bubble_share: float
    traffic_bytes: dict[str, dict[str, float]]
    """axis -> network level -> bytes an average GPU sends into the level in one step"""
    money: dict[str, Money]
    """per step, per 1e9 tokens, and (when the job states its tokens) for the whole run"""
    assumptions: tuple[str, ...]
    sync: SyncReport | None = None
    """where the policy has a strategy of data parallelism"""
    tuning: TuningFacts | None = None
    """where not all of the model is trained"""

    @property
    def examples(self) -> bool:
        """a model that reads single examples: what is told per token is per example"""
        return self.seq_tokens == 1

    @property
    def counted(self) -> str:
        return "examples" if self.examples else "tokens"

    @property
    def shares(self) -> dict[str, float]:
        return {part: seconds / self.step_s for part, seconds in self.time_s.items()}

    @property
    def largest_kind(self) -> str:
        """What fills the fullest stage most."""
        kinds = self.stages[self.fullest_stage].kinds_bytes
        return max(kinds, key=lambda kind: kinds[kind])

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        found["time_share"] = self.shares
        if self.tuning is None:
            del found["tuning"]
        return found

    def _repr_html_(self) -> str:
        from shardwise.report.page import html_of

        return html_of(self)
