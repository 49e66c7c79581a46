"""Layers of each chunk of a pipeline, and Megatron's string for them: 'Ettt|tttt|tttL'."""

import re

from shardwise.programs.formats._contract import Launch
from shardwise.work.stages import rank_layers

MOST_STAGES = 4096
MOST_TEXT = 10_000
_REPEATS = re.compile(r"\(([^()]*)\)\*(\d{1,4})|([EtmL])\*(\d{1,4})")


def chunks_of(launch: Launch) -> tuple[int, ...]:
    """Layers of each chunk, in the order a micro-batch passes them: chunk v of stage p is the (v x pp + p)-th."""
    policy, model = launch.policy, launch.case.model
    if launch.layers:
        wanted = policy.pp * policy.vpp
        if len(launch.layers) != wanted or sum(launch.layers) != model.layers or min(launch.layers) < 0:
            raise ValueError(
                f"layers: {','.join(map(str, launch.layers))}; write {wanted} numbers for pp {policy.pp} x vpp "
                f"{policy.vpp} that add up to {model.layers}"
            )
        return launch.layers
    each = rank_layers(model, launch.case.stack.abilities.stage_split, policy.pp, policy.vpp)
    return tuple(
        each[p] // policy.vpp + (v < each[p] % policy.vpp) for v in range(policy.vpp) for p in range(policy.pp)
    )


def passes_of(batch: int | None, at_once: int, pp: int) -> int:
    """Times a step fills and drains a pipeline that takes `at_once` sequences: PyTorch's schedules take a local batch,
    and a larger global one is made of several."""
    return batch // at_once if batch and pp > 1 and batch % at_once == 0 else 1


def is_even(chunks: tuple[int, ...]) -> bool:
    return len(set(chunks)) == 1


def layout_text(chunks: tuple[int, ...], extra: int = 0) -> str:
    """`extra`: prediction layers behind the last one."""
    stages = ["t" * count for count in chunks]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * extra + "L"
    return "|".join(stages)


def layers_in(text: str) -> tuple[int, ...]:
    """Layers of each chunk of a layout string; `x*n` and `(...)*n` repeat."""
    plain = text.replace(",", "").replace(" ", "").strip("'\"")
    for _ in range(100):
        longer = _REPEATS.sub(_repeated, plain, count=1)
        if longer == plain:
            break
        plain = longer
        if len(plain) > MOST_TEXT:
            raise ValueError(f"layout: more than {MOST_TEXT:,} letters; write a layout of real stages")
    if not re.fullmatch(r"[EtmL|]+", plain) or plain.count("|") >= MOST_STAGES:
        raise ValueError(f"layout: {text[:60]!r} is not understood; write stages such as 'Ettt|tttt|tttL'")
    return tuple(stage.count("t") for stage in plain.split("|"))


def _repeated(match: re.Match[str]) -> str:
    inside, count = match[1] or match[3], int(match[2] or match[4])
    return (inside * count)[: MOST_TEXT + 1]
