"""Flight recorders of NCCL ranks with several groups: the rank to look at, not those that wait for it."""

import json

import pytest
from dump_corpus import labelled, named

from shardwise.measured.diagnose.postmortem import diagnose
from shardwise.measured.diagnose.recorder import IN_A_CIRCLE, NEVER_ENDED, NO_DUMP, stuck_in
from shardwise.programs.importers.flight_recorder import read_dump


def dump(folder, rank, groups, members, sizes=None):
    """`groups`: (name, collectives called, completed) in this rank's own order, which numbers its `pg_id`."""
    entries = [{"collective_seq_id": number, "pg_id": local, "process_group": [name, f"{name}_group"], "is_p2p": False,
                "profiling_name": f"nccl:{(sizes or {}).get('op', 'all_reduce')}",
                "input_sizes": [[(sizes or {}).get(rank, 4)]], "state": "completed" if number <= done else "started"}
               for local, (name, called, done) in enumerate(groups) for number in range(1, called + 1)]  # fmt: skip
    status = {str(local): {"last_enqueued_collective": called, "last_completed_collective": done}
              for local, (_, called, done) in enumerate(groups) if called}  # fmt: skip
    config = {name: {"name": name, "desc": f"{name}_group", "ranks": str(list(members[name]))} for name, _, _ in groups}
    path = folder / f"nccl_trace_rank_{rank}"
    path.write_text(json.dumps({"version": "2.10", "entries": entries, "pg_status": status, "pg_config": config}))
    return read_dump(path)


WORLD = {"world": range(4), "left": (0, 1), "right": (2, 3)}


def test_groups_are_matched_by_name_where_ranks_number_them_differently(tmp_path):
    states = [[("world", 7, 6), ("left", 3, 3)], [("left", 3, 3), ("world", 6, 6)],
              [("world", 7, 6), ("right", 3, 3)], [("right", 3, 3), ("world", 7, 6)]]  # fmt: skip
    stuck = stuck_in([dump(tmp_path, rank, groups, WORLD) for rank, groups in enumerate(states)])
    assert [(each.group, each.number, each.missing) for each in stuck] == [("world (world_group)", 7, ("rank 1",))]


def test_a_rank_that_waits_elsewhere_is_not_the_culprit(tmp_path):
    """Rank 2 is missing in the world because it waits for rank 3, which waits nowhere."""
    states = [[("world", 7, 6), ("left", 3, 3)], [("world", 7, 6), ("left", 3, 3)],
              [("world", 6, 6), ("right", 9, 8)], [("world", 6, 6), ("right", 8, 8)]]  # fmt: skip
    stuck = stuck_in([dump(tmp_path, rank, groups, WORLD) for rank, groups in enumerate(states)])
    assert [each.missing for each in stuck] == [("rank 3",), ("rank 3",)]
    cause = diagnose(None, None, stuck, (), ()).causes[0]
    assert (cause.code, cause.rank) == ("silent", 3)


def test_a_rank_without_a_dump_is_suspected(tmp_path):
    stuck = stuck_in([dump(tmp_path, rank, [("world", 7, 6)], WORLD) for rank in (0, 1, 3)])
    assert [(each.missing, each.why) for each in stuck] == [(("rank 2",), NO_DUMP)]


def test_a_rank_that_never_used_the_group_is_behind(tmp_path):
    states = [[("world", 1, 0)], [("world", 1, 0)], [("world", 1, 0)], [("world", 0, 0)]]
    stuck = stuck_in([dump(tmp_path, rank, groups, WORLD) for rank, groups in enumerate(states)])
    assert [each.missing for each in stuck] == [("rank 3",)]


def test_groups_in_another_order_are_a_mistake_of_the_program(tmp_path):
    members = {"a": (0, 1), "b": (0, 1)}
    states = [[("a", 5, 4), ("b", 4, 4)], [("a", 4, 4), ("b", 5, 4)]]
    stuck = stuck_in([dump(tmp_path, rank, groups, members) for rank, groups in enumerate(states)])
    assert {each.why for each in stuck} == {IN_A_CIRCLE}
    assert diagnose(None, None, stuck, (), ()).causes[0].code == "program"


@pytest.mark.parametrize(("op", "missing", "why"), [("all_to_all", (), NEVER_ENDED), ("all_reduce", ("rank 1",), "")])
def test_uneven_sizes_are_normal_where_ranks_give_what_they_have(op, missing, why, tmp_path):
    sizes = {"op": op, 1: 9}
    stuck = stuck_in([dump(tmp_path, rank, [("left", 2, 1)], WORLD, sizes) for rank in (0, 1)])
    if op == "all_reduce":
        stuck = stuck_in([*(dump(tmp_path, rank, [("world", 2, 1)], WORLD, sizes) for rank in range(4))])
    assert stuck[0].missing == missing
    assert stuck[0].why.endswith(why or "something else")


@pytest.mark.parametrize("case", list(labelled()), ids=lambda case: case.source.partition(": ")[0])
def test_labelled_dumps_name_their_culprit(case, tmp_path):
    assert named(case, tmp_path) == (case.code, case.rank)
