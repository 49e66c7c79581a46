"""The questions of benchmarks/joint.py: published layouts, and clusters of unlike parts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MixedCase:
    model: str
    parts: tuple[str, ...]
    link: str
    """between two parts, all of it"""
    seq: int = 4096
    global_batch: int = 128
    rents: tuple[float, ...] = ()
    """USD per GPU hour of each part: then the objective is dollars"""

    @property
    def name(self) -> str:
        return f"{self.model} on {' + '.join(self.parts)} over {self.link}{', dollars' if self.rents else ''}"


MIXED = (
    MixedCase("llama-3-8b", ("8xh100", "8xa100-80"), "400 Gbps"),
    MixedCase("llama-3-8b", ("8xh100", "8xa100-80"), "10 Gbps"),
    MixedCase("llama-3-8b", ("8xa100-80", "8xa100-40"), "200 Gbps"),
    MixedCase("llama-3-8b", ("8xl40s", "8xa100-40"), "100 Gbps"),
    MixedCase("llama-3-8b", ("8xrtx4090", "8xrtx3090"), "25 Gbps", seq=2048, global_batch=64),
    MixedCase("llama-3-8b", ("8xh100", "8xa100-80", "8xl40s"), "100 Gbps"),
    MixedCase("llama-3-8b", ("8xh200", "8xh100", "8xa100-80", "8xv100"), "100 Gbps"),
    MixedCase("mistral-7b", ("4xh100", "8xa100-40"), "100 Gbps", global_batch=64),
    MixedCase("llama-2-13b", ("8xh100", "16xa100-40"), "200 Gbps"),
    MixedCase("llama-2-13b", ("2x8xa100-80", "2x8xv100"), "100 Gbps", seq=2048),
    MixedCase("llama-3-70b", ("4x8xh100", "4x8xa100-80"), "800 Gbps"),
    MixedCase("llama-3-70b", ("4x8xh100", "4x8xa100-80", "2x8xh200"), "400 Gbps"),
    MixedCase("llama-3-70b", ("2x8xh200", "4x8xh100"), "100 Gbps"),
    MixedCase("llama-3-70b", ("4x8xh100", "4x8xh100"), "10 Gbps"),
    MixedCase("llama-3-70b", ("2x8xb200", "4x8xh100", "8x8xa100-80"), "400 Gbps", global_batch=256),
    MixedCase("llama-3-70b", ("8x8xa100-80", "8x8xa100-40"), "400 Gbps", global_batch=256),
    MixedCase("gpt-3-175b", ("8x8xh100", "16x8xa100-80"), "1600 Gbps", seq=2048, global_batch=256),
    MixedCase("gpt-3-175b", ("8x8xh100", "8x8xh200", "16x8xa100-80"), "1600 Gbps", seq=2048, global_batch=256),
    MixedCase("llama-3-8b", ("8xh100", "8xa100-80"), "100 Gbps", rents=(2.5, 0.9)),
    MixedCase("llama-3-70b", ("4x8xh100", "4x8xa100-80"), "400 Gbps", rents=(2.0, 0.8)),
)
