"""`verify --device cuda`: a plan's rank on this machine's GPU, its time and peak memory against the prediction."""

from typing import Any

from shardwise.question import PolicyQuestion
from shardwise.report.terminal import policy_text
from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.spec.software import named
from shardwise.step.estimate.band import band_for
from shardwise.step.estimate.own_work import OwnWork, own_work
from shardwise.units import time_text

MEMORY_TOLERANCE = 0.03
STEPS = 5
KERNELS = "one rank of many: the sum of its own kernels; messages and waiting are left to the model"
WHOLE = "the whole step by the clock"


def verify_on_device(found: PolicyQuestion, order: Any, rank: int | None, fake: bool, json: bool) -> bool:
    """Whether time and memory are as predicted; prints both."""
    from shardwise.run.runtime.device import measured_on_device, needs_gpu

    needs_gpu(found.policy, fake)
    expected = own_work(found.case, found.policy)
    where = (expected.rank if rank is None else rank) if fake else None
    measured = measured_on_device(order, STEPS, rank=where)
    seconds = measured.kernels_s if fake else measured.step_s
    predicted = expected.kernels_s + (0.0 if fake else expected.host_s)
    result: dict[str, Any] = {
        "model": found.model.name, "policy": found.policy, "rank": where or 0, "ranks": found.policy.gpus,
        "device": measured.device, "measured_s": seconds, "predicted_s": predicted,
        "time_error": predicted / seconds - 1.0, "band": _band(found),
        "spread": measured.spread,
        "measured_peak_bytes": measured.peak_bytes, "predicted_peak_bytes": expected.peak_bytes,
        "memory_error": expected.peak_bytes / measured.peak_bytes - 1.0, "predicted_memory_bytes": expected.memory,
        "timed": KERNELS if fake else WHOLE, "policy_origin": found.origin, "notes": found.notes,
    }  # fmt: skip
    holds = abs(result["time_error"]) <= result["band"] and abs(result["memory_error"]) <= MEMORY_TOLERANCE
    if json:
        print_json({"holds": holds, **result})
    else:
        _show(found, expected, result, holds)
    return bool(holds)


def _band(found: PolicyQuestion) -> float:
    """Of language models by the same program: what is timed is the work itself."""
    return band_for(
        named(found.case.stack), found.case.curve, gpus=found.cluster.gpus, experts=False, source=None
    ).half_width


def _show(found: PolicyQuestion, expected: OwnWork, result: dict[str, Any], holds: bool) -> None:
    print_facts(
        f"{found.model.name}: prediction {'holds' if holds else 'does not hold'} on {result['device']}",
        [
            ("policy", f"{policy_text(found.policy)}, rank {result['rank']} of {result['ranks']:,}"),
            ("step", f"{time_text(result['measured_s'])} measured, {time_text(result['predicted_s'])} predicted "
                     f"({result['time_error']:+.1%}, band {result['band']:.0%})"),
            ("memory", f"{result['measured_peak_bytes']:,} bytes allocated at most, "
                       f"{result['predicted_peak_bytes']:,.0f} predicted ({result['memory_error']:+.1%})"),
        ],
    )  # fmt: skip
    print_gap()
    rows = [(name, f"{1e3 * seconds:,.2f} ms") for name, seconds in expected.parts.items()]
    print_table("predicted kernels", ["part", "time"], rows, words=1, bars=("time",))
    print_gap()
    kinds = [(kind, f"{int(size):,}") for kind, size in expected.memory.items()]
    print_table("predicted memory", ["kind", "bytes"], kinds, words=1, bars=("bytes",))
    print_notes([*found.notes, result["timed"]])
