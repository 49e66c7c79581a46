"""A stack's file: every number says where it comes from, and a slip names file, field and the nearest one."""

from typing import Any

import pytest

from shardwise import catalog
from shardwise.spec.software import PARTS, Stack, load, stack_of
from shardwise.spec.software.stack import part_of

HEAD = {"name": "mine", "summary": "a test", "source": "its manual", "date": "2026-11-16"}
MOST_SETTINGS = 20


def stack_with(monkeypatch: pytest.MonkeyPatch, **tables: Any) -> Stack:
    entry = catalog.entry
    monkeypatch.setattr(
        catalog, "entry", lambda kind, name: {**HEAD, **tables} if name == "mine" else entry(kind, name)
    )
    load.stack_of.cache_clear()
    try:
        return stack_of("mine")
    finally:
        load.stack_of.cache_clear()


def test_every_setting_belongs_to_one_part_and_no_part_is_large() -> None:
    names = [name for struct in PARTS.values() for name in struct.__struct_fields__]
    assert len(names) == len(set(names))
    assert max(len(struct.__struct_fields__) for struct in PARTS.values()) <= MOST_SETTINGS
    assert {part_of(name) for name in names} == set(PARTS)


def test_a_plain_value_is_read_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = stack_with(
        monkeypatch, kernels={"fused_glu": False, "kernel_efficiency": {"fitted": 0.9}}, fitted_on="runs"
    )
    assert str(stack.origin("fused_glu")) == "read in the program: its manual (stack mine)"
    assert str(stack.origin("kernel_efficiency")) == "fitted on runs (stack mine)"
    assert stack.origin("fused_norm").kind == "default"
    assert (stack.kernels.fused_glu, stack.kernels.kernel_efficiency) == (False, 0.9)
    assert stack.fitted == ("kernel_efficiency",)


def test_a_number_of_another_stack_stays_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"overlap_ep_between_nodes": {"like": "megatron-core", "setting": "overlap_ep"}}
    stack, core = stack_with(monkeypatch, experts=taken), stack_of("megatron-core")
    assert stack.experts.overlap_ep_between_nodes == core.experts.overlap_ep
    assert stack.origin("overlap_ep_between_nodes") == core.origin("overlap_ep")
    assert not stack.fitted


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"kernels": {"kernel_eficiency": 0.9}}, r"mine.toml: 'kernel_eficiency' is unknown.*kernel_efficiency"),
        ({"host": {"kernel_efficiency": 0.9}}, r"'kernel_efficiency' is unknown in \[host\].*kernels"),
        ({"kernel": {"fused_glu": True}}, r"program mine.toml: 'kernel' is unknown at the top.*kernels"),
        ({"kernels": 0.9}, r"'kernels' is 0.9; write a table \[kernels\]"),
        ({"kernels": {"kernel_efficiency": "fast"}}, r"program mine.toml: \[kernels\] .*kernel_efficiency"),
        ({"kernels": {"kernel_efficiency": {"guessed": 0.9}}}, "does not say where the number comes from"),
        ({"kernels": {"kernel_efficiency": {"timed": 0.9}}}, "timed 0.9 does not say on what; write by ="),
        ({"kernels": {"kernel_efficiency": {"fitted": 0.9}}}, "write fitted_on ="),
        ({"kernels": {"kernel_efficiency": {"set": 0.9, "by": "rows"}}}, "'by' is unknown"),
        ({"kernels": {"kernel_efficiency": {"like": "megatron-cor"}}}, "megatron-core"),
        ({"kernels": {"kernel_efficiency": {"like": 3}}}, "kernels.kernel_efficiency: like is 3; write a name"),
        ({"like": 3}, "program mine.toml: like is 3; write a name in quotes"),
        ({"matches": "x"}, "program mine.toml: .*matches"),
        ({"loss": {"loss_logit_bytes": -3.0}}, "program mine.toml: loss.loss_logit_bytes is -3.0; write a number"),
        ({"loss": {"loss_logit_bytes": float("nan")}}, "loss.loss_logit_bytes is nan"),
    ],
)  # fmt: skip
def test_a_slip_is_named(monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        stack_with(monkeypatch, **tables)


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="hidden_share"):
        stack_of("megatron-core").changed(hiden_share=0.5)


def test_one_stack_over_another_takes_what_its_own_file_states() -> None:
    stack, bf16 = stack_of("deepspeed@megatron"), stack_of("fact:megatron-deepspeed-bf16")
    over = stack.taking_over(bf16)
    assert all(over.setting(name) == bf16.setting(name) for name in bf16.stated)
    assert over.name == stack.name
    assert over.origin("pointwise_passes").stack == "deepspeed@bigscience"
