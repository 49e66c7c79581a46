"""The flags of post-training, as `run` takes them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from shardwise.show.cli._shown import RARE

if TYPE_CHECKING:
    from shardwise.run.runtime.rollout.order import RolloutOrder


@Parameter(name="*", show=RARE)
@dataclass(frozen=True, kw_only=True)
class RolloutFlags:
    algorithm: Annotated[
        str | None, Parameter(show=True, help="Post-train: grpo or rloo. Default: training on texts.")
    ] = None
    rollout_ranks: Annotated[
        int | None, Parameter(help="Ranks that only roll out, besides the policy's; default: the policy's do both.")
    ] = None
    engine_tp: Annotated[int | None, Parameter(help="Ranks of an engine that rolls out; default: 1.")] = None
    group: Annotated[int | None, Parameter(help="Answers to each prompt; default: 8.")] = None
    prompt_tokens: Annotated[
        int | None, Parameter(help="Tokens of a prompt, out of --seq; default: 8. The rest is the longest answer.")
    ] = None
    lag: Annotated[int | None, Parameter(help="Steps that answers are older than the weights; default: 0.")] = None
    reward: Annotated[str | None, Parameter(help="Rule: digits, echo or short; default: digits.")] = None
    ratio_clip: Annotated[
        float | None, Parameter(help="How far the ratio of probabilities may leave 1; default: 0.2.")
    ] = None


NONE = RolloutFlags()


def rollout_of(given: RolloutFlags) -> "RolloutOrder | None":
    """Bad values are a ValueError that names the flag."""
    from shardwise.run.runtime.rollout.order import RolloutOrder

    fields = {
        "ranks": given.rollout_ranks, "tp": given.engine_tp, "group": given.group, "prompt_tokens": given.prompt_tokens,
        "lag": given.lag, "reward": given.reward, "clip": given.ratio_clip,
    }  # fmt: skip
    said = {name: value for name, value in fields.items() if value is not None}
    if given.algorithm is None:
        if said:
            raise ValueError(f"{_flag(next(iter(said)))}: is of post-training; write --algorithm grpo too")
        return None
    return RolloutOrder(algorithm=given.algorithm, **said)  # type: ignore[arg-type]


def _flag(field: str) -> str:
    return {"ranks": "rollout-ranks", "tp": "engine-tp", "clip": "ratio-clip"}.get(field, field.replace("_", "-"))
