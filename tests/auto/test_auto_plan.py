"""Plans in words and in files, and what is wrong with others."""

import msgspec
import pytest

from shardwise.run.auto.plan import AutoPlan, CutKind, Degrees, End, degrees_of, plan_file


def test_words_name_what_is_shared():
    assert degrees_of("fsdp=2,tp=4") == Degrees(dp=2, tp=4)
    assert degrees_of("pp=4,recompute") == Degrees(pp=4, micro_batches=8, recompute=True)
    assert degrees_of("dp=2,tp=2,pp=2").ranks == 8
    assert degrees_of("dp=2") == degrees_of("fsdp=2")
    assert degrees_of("dp=2,fsdp=4") == Degrees(dp=8, replicas=2)
    assert degrees_of("pp=2,vpp=2,schedule=zb_v,offload=both").text == "pp 2, vpp 2, zb_v, both on the host"


def test_a_schedule_says_which_stages_a_rank_holds():
    blocks = tuple("abcdefgh")
    looped = AutoPlan(degrees=degrees_of("pp=2,vpp=2"), kinds=(), order=blocks)
    assert looped.held == ((0, 2), (1, 3))
    assert looped.own(1) == ("c", "d", "g", "h")
    folded = AutoPlan(degrees=degrees_of("pp=2,vpp=2,schedule=zb_v"), kinds=(), order=blocks)
    assert folded.held == ((0, 3), (1, 2))
    assert AutoPlan(degrees=Degrees(dp=2), kinds=(), order=blocks).own(0) == blocks


@pytest.mark.parametrize(
    ("text", "words"),
    [("tp", "'tp' is not part"), ("tp=0", "not part"), ("tp=2,tp=4", "tp is .2. and .4."), ("", "says nothing"),
     ("micro=4", "write pp=2 too"), ("ep=2", "write fsdp=2,ep=2"), ("sp", "write tp=2,sp"), ("tp=²", "not part"),
     ("vpp=2", "write pp=2 too"), ("schedule=gpipe", "write pp=2 too"), ("pp=2,schedule=1f2b", "write '1f1b'|1f1b"),
     ("dp=2,fsdp=1", "shards nothing"), ("fsdp=2,offload=all", "write optimizer, activations, both or none")],
)  # fmt: skip
def test_other_words_are_refused_in_one_line(text, words):
    with pytest.raises(ValueError, match=words) as told:
        degrees_of(text)
    assert "\n" not in str(told.value)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = AutoPlan(
        degrees=Degrees(tp=2), kinds=(CutKind(class_name="Block", blocks=("a.0", "a.1")),), order=("a.0", "a.1")
    )
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    assert plan_file(path) == plan


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"degrees": {"tp": "two"}, "kinds": []}', b"\xff\xfe"])
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="plan") as told:
        plan_file(path)
    assert "\n" not in str(told.value)


def test_stages_are_as_even_as_they_come():
    plan = AutoPlan(degrees=Degrees(pp=3), kinds=(), order=tuple("abcde"))
    assert plan.stages == (("a", "b"), ("c", "d"), ("e",))


def test_ends_are_where_they_are_needed():
    tied = End(parameter="words", first=True, last=True)
    assert [tied.needed((stage,), 3) for stage in range(3)] == [True, False, True]
    assert [tied.needed(held, 4) for held in ((0, 2), (1, 3), (1, 2))] == [True, True, False]
    assert all(End(parameter="time").needed((stage,), 3) for stage in range(3))
