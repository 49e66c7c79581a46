"""A collective's axis: by the name of its group, by who is in it and how far apart, or by what it does."""

import pytest

from shardwise.measured.diagnose.axes import cause_of, groups_of, place_of
from shardwise.measured.diagnose.device_trace import SpanName
from shardwise.spec.policy import Policy

THREE_D = Policy(tp=4, cp=1, dp=8, pp=2, zero=1)


def call(op: str, size: int = 0, ranks: tuple[int, ...] = (), description: str = "") -> SpanName:
    return SpanName(kind="comm", name="nccl", op=op, group_size=size, ranks=ranks, description=description)


@pytest.mark.parametrize(("span", "policy", "code"), [
    (call("all_reduce", 4, (0, 1, 2, 3)), THREE_D, "tp_comm"),
    (call("reduce_scatter", 8, tuple(range(0, 32, 4))), THREE_D, "grad_comm"),
    (call("all_gather", 8, tuple(range(0, 32, 4))), THREE_D, "param_comm"),
    (call("all_reduce", 8), THREE_D, "grad_comm"),
    (call("send"), THREE_D, "bubble"),
    (call("all_gather", 8, tuple(range(8))), Policy(dp=8, zero=3), "fsdp_comm"),
    (call("reduce_scatter", 8), Policy(dp=8, zero=3), "fsdp_comm"),
    (call("all_reduce"), Policy(dp=8, zero=3), "grad_comm"),
    (call("all_to_all", 8, tuple(range(8))), Policy(dp=8, ep=8), "ep_comm"),
    (call("all_to_all"), Policy(dp=2, cp=4), "cp_comm"),
    (call("send"), Policy(dp=2, cp=4), "cp_comm"),
    (call("all_reduce", 4), Policy(tp=4, dp=4), "comm"),
    (call("all_reduce", 4, (0, 4, 8, 12)), Policy(tp=4, dp=4), "grad_comm"),
    (call("all_gather", 4, description="mesh_tp"), None, "tp_comm"),
    (call("all_reduce", 4, description="DATA_PARALLEL_GROUP_WITH_CP"), None, "grad_comm"),
    (call("all_to_all", 4, description="EXPERT_MODEL_PARALLEL_GROUP"), None, "ep_comm"),
    (call("all_reduce", 4), None, "comm"),
    (SpanName(kind="comm", name="tp", axis="tp"), None, "tp_comm"),
])  # fmt: skip
def test_axis(span, policy, code):
    assert cause_of(span, policy) == code


def test_groups_follow_the_order_of_the_axes():
    assert groups_of(Policy(tp=2, dp=4, pp=2))[:3] == [("tp", 2, 1), ("dp", 4, 2), ("pp", 2, 8)]
    outer = groups_of(Policy(tp=2, dp=4, pp=2, order="tp-pp-cp-dp"))
    assert ("pp", 2, 2) in outer
    assert ("dp", 4, 4) in outer


def test_where_a_rank_stands():
    assert place_of(13, Policy(tp=2, dp=4, pp=2)) == "tp 1, dp 2, pp 1"
    assert place_of(13, Policy(tp=2, dp=4, pp=2, order="tp-pp-cp-dp")) == "tp 1, pp 0, dp 3"
    assert place_of(5, Policy(dp=8)) == ""
