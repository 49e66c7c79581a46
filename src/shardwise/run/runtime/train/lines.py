"""What is told of one step: the log line, the JSON object, the scalars."""

from msgspec import Struct


class RolloutLine(Struct, frozen=True, kw_only=True):
    """Of one step of reinforcement learning, besides its update."""

    reward: float
    """mean of the answers"""
    answer_tokens: float
    """mean"""
    age: int
    """steps between the weights that rolled out and those that were trained"""
    clipped: float
    """share of tokens whose ratio of probabilities left the bounds"""
    seconds: dict[str, float]
    """by phase; rollout's are an engine's own, and waiting's those in which the trainer had nothing to do"""
    bytes: dict[str, float]
    """sent by all ranks, by phase"""
    expected_bytes: dict[str, float]
    """as predicted from model, layouts and the answers' lengths"""


class StepLine(Struct, frozen=True, kw_only=True):
    step: int
    loss: float
    grad_norm: float
    rate: float
    step_s: float
    tokens_per_s: float
    """of all ranks"""
    tflops_per_rank: float
    mfu: float | None
    """None where the device's peak is not known"""
    peak_bytes: int
    """of this rank: allocated on a CUDA device, resident on the CPU"""
    memory_share: float = 0.0
    """of the device's, or of the machine's memory"""
    ranks: int = 1
    eval_loss: float | None = None
    accuracy: float | None = None
    perplexity: float | None = None
    """all three where an evaluation followed the step; a classifier has no perplexity"""
    replicas: tuple[int, ...] = ()
    """whose micro-batches it has, in a run that goes on without lost ones; empty: all"""
    rollout: RolloutLine | None = None
    """None: trained on texts"""

    def text(self) -> str:
        """As torchtitan prints it: tokens a second are those of one rank."""
        memory = f"{self.peak_bytes / 2**30:5.2f}GiB({self.memory_share:.2%})"
        mfu = "n/a" if self.mfu is None else f"{self.mfu:.2%}"
        reward = ""
        if self.rollout is not None:
            reward = f"reward: {self.rollout.reward:.4f}  answer: {self.rollout.answer_tokens:.1f}  "
        return (
            f"step: {self.step:2}  {reward}loss: {self.loss:7.4f}  grad_norm: {self.grad_norm:7.4f}  memory: {memory}  "
            f"tps: {self.tokens_per_s / self.ranks:,.0f}  tflops: {self.tflops_per_rank:,.2f}  mfu: {mfu}"
        )

    def eval_text(self) -> str:
        """Empty where nothing was evaluated."""
        if self.eval_loss is None:
            return ""
        quality = f"accuracy: {self.accuracy:.2%}" if self.perplexity is None else f"perplexity: {self.perplexity:,.3f}"
        return f"eval: {self.step:2}  loss: {self.eval_loss:7.4f}  {quality}"

    def fields(self) -> dict[str, float | int | tuple[int, ...] | RolloutLine | None]:
        """Of the JSON object; what was not evaluated is left away."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        rare = ("eval_loss", "accuracy", "perplexity", "replicas", "rollout")
        return {k: v for k, v in found.items() if v not in (None, ()) or k not in rare}

    def scalars(self) -> dict[str, float]:
        """By TensorBoard's tags, grouped before the stroke."""
        found = {
            "loss/train": self.loss, "loss/eval": self.eval_loss, "loss/eval_perplexity": self.perplexity,
            "loss/eval_accuracy": self.accuracy,
            "optimizer/grad_norm": self.grad_norm, "optimizer/rate": self.rate, "speed/step(s)": self.step_s,
            "speed/tokens_per_s": self.tokens_per_s, "speed/tflops_per_rank": self.tflops_per_rank,
            "rollout/reward": self.rollout.reward if self.rollout is not None else None,
            "speed/mfu": self.mfu, "memory/peak(GiB)": self.peak_bytes / 2**30,
        }  # fmt: skip
        return {tag: value for tag, value in found.items() if value is not None}
