"""Messages of a step, piece by piece: known answers, and the same bytes as the traffic table where both count."""

from collections import Counter

import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import training_of
from shardwise.work.messages import Piece, RankMessage, messages, piecewise

SEQ, BATCH = 64, 8
MODEL = model_from_shape("m", 4, 64, 8, 4, 192, True, 256, tied=False)
STACK = stack_of("shardwise")


def sent(policy: Policy, *, model=MODEL, stack=STACK, precision: str = "fp32") -> list[list[RankMessage]]:
    """Of one rank of each piece."""
    job = Job(seq=SEQ, global_batch=BATCH, precision=PRECISIONS[precision])
    work = piecewise(training_of(model, job, stack), policy)
    pieces = policy.pp * policy.vpp
    recomputed = model.layers // pieces if policy.recompute == "full" else 0
    return [
        messages(
            work, Piece(i, recomputed, sends_on=i < pieces - 1, sends_back=i > 0)
        )
        for i in range(pieces)
    ]  # fmt: skip


def totals(found: list[RankMessage]) -> dict[tuple[str, str, str], tuple[float, float]]:
    counts, sizes = Counter(), Counter()
    for item in found:
        key = (item.axis, item.op, item.phase)
        counts[key] += item.count
        sizes[key] += item.count * item.bytes
    return {key: (counts[key], sizes[key]) for key in counts}


def test_one_rank_sends_nothing() -> None:
    assert sent(Policy()) == [[]]


def test_sequence_parallel_layer() -> None:
    """Two gathers and two scatters a layer forward; embedding and head add one each; the norms are summed once."""
    (found,) = map(totals, sent(Policy(tp=2, zero=0)))
    whole = 4 * SEQ * 64
    assert found["tp", "all_gather", "forward"] == (BATCH * (2 * 4 + 1), BATCH * 9 * whole)
    assert found["tp", "reduce_scatter", "forward"] == (BATCH * (2 * 4 + 1), BATCH * 9 * whole)
    assert found["tp", "all_reduce", "step"] == (1, 4 * 64 * (2 * 4 + 1))


def test_without_sequence_parallelism_norms_need_no_sum() -> None:
    (found,) = map(totals, sent(Policy(tp=2, sp=False, zero=0)))
    assert ("tp", "all_reduce", "step") not in found


def test_buckets_cut_the_gradient() -> None:
    small = STACK.changed(bucket_bytes=100_000.0)
    (whole,), (cut,) = (list(map(totals, sent(Policy(dp=2, zero=0), stack=s))) for s in (STACK, small))
    key = ("dp", "all_reduce", "backward")
    assert whole[key][0] == 1
    assert cut[key][0] > 1
    assert cut[key][1] == pytest.approx(whole[key][1])


@pytest.mark.parametrize(("zero", "often"), [(1, 1), (2, BATCH // 2)])
def test_zero_reduces_as_often_as_it_must(zero: int, often: int) -> None:
    (found,) = map(totals, sent(Policy(dp=2, zero=zero)))
    assert found["dp", "reduce_scatter", "backward"][0] == often
    assert found["dp", "all_gather", "step"][0] == 1


def test_zero_3_gathers_units_twice_and_once_with_stages() -> None:
    (found,) = map(totals, sent(Policy(dp=2, zero=3)))
    assert found["dp", "all_gather", "forward"][0] == 6 * BATCH // 2
    assert found["dp", "all_gather", "backward"] == found["dp", "all_gather", "forward"]
    first, last = map(totals, sent(Policy(dp=2, pp=2, zero=3)))
    assert first["dp", "all_gather", "forward"][0] == last["dp", "all_gather", "forward"][0] == 3
    assert ("dp", "all_gather", "backward") not in first


def test_both_ends_of_a_tied_model_share_the_table() -> None:
    tied = replace(MODEL, tied=True)
    first, middle, last = (totals(f) for f in sent(Policy(pp=3, zero=0), model=replace(tied, pattern=(0,) * 3)))
    assert first["pp", "all_reduce", "step"] == last["pp", "all_reduce", "step"] == (1, 4 * 256 * 64)
    assert ("pp", "all_reduce", "step") not in middle


def test_transfers_have_the_element_of_the_precision() -> None:
    for precision, element in (("fp32", 4), ("bf16", 2)):
        first, last = map(totals, sent(Policy(pp=2, zero=0), precision=precision))
        assert first["pp", "send", "forward"] == (BATCH, BATCH * element * SEQ * 64)
        assert last["pp", "send", "backward"] == first["pp", "send", "forward"]


def test_recompute_repeats_every_forward_message() -> None:
    (plain,), (full,) = (
        list(map(totals, sent(Policy(tp=2, cp=2, zero=0, recompute=r)))) for r in ("none", "full")
    )  # fmt: skip
    assert full["cp", "send", "recompute"] == plain["cp", "send", "forward"]
    assert full["tp", "all_gather", "recompute"][0] == plain["tp", "all_gather", "forward"][0] - BATCH
    assert {k: v for k, v in full.items() if k[2] != "recompute"} == plain
