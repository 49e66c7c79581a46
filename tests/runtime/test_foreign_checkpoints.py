"""Checkpoints of other programs: read as their own loaders read them, damage reported, converted without a change.

torch writes and loads its own here; benchmarks/foreign.py does the same with the programs themselves.
"""

import json
import os
import pickle
import subprocess
import sys

import msgspec
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader

from shardwise.answers.checkpoints import checkpoints_answer
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.convert import convert
from shardwise.run.runtime.formats.diff import differences_of
from shardwise.run.runtime.formats.layout import WRITTEN
from shardwise.run.runtime.formats.opened import open_checkpoint
from shardwise.run.runtime.formats.stored import numbers, pieces, rows_of
from shardwise.run.runtime.formats.verify import problems_of, untrained
from shardwise.run.runtime.weights import safetensors

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
SHAPES = {"embedding.weight": (7, 4), "norm.weight": (4,), "head.weight": (5, 4)}


def values(shift=0.0):
    made = torch.Generator().manual_seed(3)
    return {name: torch.randn(shape, generator=made) + shift for name, shape in SHAPES.items()}


def state_of(weights, *, steps=3.0):
    return {
        name: {"exp_avg": one * 0.1, "exp_avg_sq": one.square(), "step": torch.tensor(steps)}
        for name, one in weights.items()
    }


def written_by_torch(folder, **more):
    weights = values()
    groups = [{"lr": 1e-3, "betas": (0.9, 0.99), "params": list(weights)}]
    tree = {"model": weights, "optim": {"state": state_of(weights), "param_groups": groups}, "step": 3,
            "scheduler": {"last_epoch": 3}, "rng": torch.arange(9, dtype=torch.uint8), **more}  # fmt: skip
    dcp.save(tree, checkpoint_id=folder, no_dist=True)
    return tree


def written_by_deepspeed(folder, stage, ranks=2):
    """As deepspeed/utils/zero_to_fp32.py reads it back: groups end to end, or every weight cut over the ranks."""
    weights = values()
    flat = {kind: [one.reshape(-1) for one in of.values()] for kind, of in (
        ("fp32", weights), ("exp_avg", {n: one * 0.1 for n, one in weights.items()}),
        ("exp_avg_sq", {n: one.square() for n, one in weights.items()}),
    )}  # fmt: skip

    def share(kind, rank):
        if stage == 3:
            parts = [torch.nn.functional.pad(one, (0, -len(one) % ranks)).chunk(ranks)[rank] for one in flat[kind]]
            return torch.cat(parts)
        whole = torch.cat(flat[kind])
        return torch.nn.functional.pad(whole, (0, -len(whole) % (2 * ranks))).chunk(ranks)[rank].clone()

    inside = folder / "global_step3"
    inside.mkdir(parents=True)
    for rank in range(ranks):
        moments = {0: {"exp_avg": share("exp_avg", rank), "exp_avg_sq": share("exp_avg_sq", rank), "step": 3}}
        name, base = ("fp32_flat_groups", "optimizer_state_dict") if stage == 3 else (
            "single_partition_of_fp32_groups", "base_optimizer_state")  # fmt: skip
        state = {"zero_stage": stage, "partition_count": ranks, name: [share("fp32", rank)],
                 base: {"state": moments, "param_groups": [{"lr": 1e-3, "params": [0]}]}}  # fmt: skip
        torch.save({"optimizer_state_dict": state}, inside / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    model = {"module": {n: one.bfloat16() for n, one in weights.items()} if stage < 3 else {}, "global_steps": 3,
             "param_shapes": [{n: one.shape for n, one in weights.items()}]}  # fmt: skip
    name = "zero_pp_rank_0_mp_rank_00_model_states.pt" if stage == 3 else "mp_rank_00_model_states.pt"
    torch.save(model, inside / name)
    (folder / "latest").write_text("global_step3")
    return weights


def all_of(checkpoint, kind):
    return {name: rows_of(one, 0, one.shape[0] if one.shape else 1) for name, one in checkpoint.of_kind(kind).items()}


def problems(folder):
    return problems_of(open_checkpoint(folder), read=lambda _: None)


def test_torchs_own_values_are_read(tmp_path):
    tree = written_by_torch(tmp_path / "a")
    found = open_checkpoint(tmp_path / "a")
    assert (found.format, found.step, found.moments) == ("torch dcp", 3, ["exp_avg", "exp_avg_sq"])
    for name, one in all_of(found, "weight").items():
        assert np.array_equal(one, tree["model"][name].numpy())
    assert np.array_equal(all_of(found, "exp_avg_sq")["norm.weight"], tree["model"]["norm.weight"].square().numpy())
    assert found.values["optim.param_groups.0.betas"] == [0.9, 0.99]
    assert problems(tmp_path / "a") == []


@pytest.mark.parametrize("stage", [1, 3])
def test_shares_of_deepspeeds_ranks_are_joined(tmp_path, stage):
    weights = written_by_deepspeed(tmp_path, stage)
    found = open_checkpoint(tmp_path)
    assert (found.format, found.step) == (f"deepspeed zero {stage}", 3)
    masters = all_of(found, "master")
    assert all(np.array_equal(masters[name], one.numpy()) for name, one in weights.items())
    assert problems(tmp_path) == []


def test_bf16_is_read_bit_for_bit(tmp_path):
    one = torch.tensor([1.0, -2.5, 3.0e38, 1e-40]).bfloat16()
    safetensors.write(tmp_path / "model.safetensors", {"w": (torch.bfloat16, (4,))}, lambda _: one)
    found = open_checkpoint(tmp_path).tensors["w"]
    assert numbers(rows_of(found, 0, 4), found.dtype).tolist() == one.float().tolist()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_every_fp8_number_is_torchs(dtype):
    codes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(codes).view(getattr(torch, dtype)).float().numpy()
    assert np.array_equal(numbers(codes, dtype), theirs, equal_nan=True)


def test_transposed_storage_is_read_as_it_is_meant(tmp_path):
    one = torch.arange(12.0).reshape(3, 4).t()
    dcp.save({"w": one}, checkpoint_id=tmp_path, no_dist=True)
    found = open_checkpoint(tmp_path).tensors["w"]
    assert rows_of(found, 1, 2).tolist() == one[1:3].tolist()


def edited(folder, change):
    metadata = FileSystemReader(folder).read_metadata()
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def entry(metadata, name="optim.state.head.weight.exp_avg"):
    return metadata.state_dict_metadata[name]


@pytest.mark.parametrize(("change", "field"), [
    (lambda m: entry(m).chunks.clear(), "is missing"),
    (lambda m: entry(m).chunks.append(entry(m).chunks[0]), "2 times"),
    (lambda m: setattr(entry(m).chunks[0], "sizes", torch.Size((2, 4))), "is missing"),
    (lambda m: setattr(entry(m).properties, "dtype", torch.float64), "cannot be read"),
    (lambda m: m.state_dict_metadata.pop("model.head.weight"), "no weight of that name"),
    (lambda m: m.state_dict_metadata.pop("optim.state.head.weight.exp_avg_sq"), "other moments"),
])  # fmt: skip
def test_a_list_of_places_edited_by_hand_is_reported(tmp_path, change, field):
    written_by_torch(tmp_path / "a")
    edited(tmp_path / "a", change)
    found = problems(tmp_path / "a")
    assert any("head.weight" in one and field in one for one in found), found


def test_a_flipped_bit_is_reported_by_its_tensor(tmp_path):
    tree = written_by_torch(tmp_path / "a")
    file = tmp_path / "a" / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    at = content.index(tree["model"]["head.weight"].numpy().tobytes())
    content[at] ^= 1
    file.write_bytes(content)
    (found,) = problems(tmp_path / "a")
    assert "model.head.weight" in found
    assert "checksum" in found


@pytest.mark.parametrize(("change", "field"), [
    (lambda s: s["optimizer_state_dict"]["base_optimizer_state"]["state"][0]["exp_avg"].fill_(float("nan")), "NaN"),
    (lambda s: s["optimizer_state_dict"]["base_optimizer_state"]["state"][0]["exp_avg_sq"].neg_(), "negative"),
    (lambda s: s["optimizer_state_dict"]["single_partition_of_fp32_groups"][0].mul_(1.1), "fp32 copy"),
])  # fmt: skip
def test_optimizer_state_out_of_step_is_reported(tmp_path, change, field):
    written_by_deepspeed(tmp_path, 1)
    path = tmp_path / "global_step3" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)
    found = problems(tmp_path)
    assert any(field in one for one in found), found


def test_a_missing_rank_is_named(tmp_path):
    written_by_deepspeed(tmp_path, 3)
    (tmp_path / "global_step3" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    with pytest.raises(DamagedCheckpoint, match="rank 0"):
        open_checkpoint(tmp_path)


def test_one_parameter_of_another_step_is_named(tmp_path):
    weights = values()
    state = state_of(weights)
    state["norm.weight"]["step"] = torch.tensor(2.0)
    dcp.save({"model": weights, "optim": {"state": state}}, checkpoint_id=tmp_path, no_dist=True)
    (found,) = problems(tmp_path)
    assert "norm.weight is 2" in found


def test_weights_without_moments_are_a_remark(tmp_path):
    weights, state = values(), state_of(values())
    del state["head.weight"]
    dcp.save({"model": weights, "optim": {"state": state}}, checkpoint_id=tmp_path, no_dist=True)
    assert problems(tmp_path) == []
    assert untrained(open_checkpoint(tmp_path)) == ["head.weight"]


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_in_a_pickle_is_not_run(tmp_path):
    written_by_torch(tmp_path / "a", extra=Runs(tmp_path / "ran"))
    found = open_checkpoint(tmp_path / "a")
    assert "mkdir" in str(found.values["extra"])
    (tmp_path / "a" / ".metadata").write_bytes(pickle.dumps(Runs(tmp_path / "ran")))
    with pytest.raises(DamagedCheckpoint):
        open_checkpoint(tmp_path / "a")
    assert not (tmp_path / "ran").exists()


def test_a_place_outside_the_folder_is_refused(tmp_path):
    written_by_torch(tmp_path / "a")
    edited(tmp_path / "a", lambda m: setattr(next(iter(m.storage_data.values())), "relative_path", "../b"))
    with pytest.raises(DamagedCheckpoint, match="not in its folder"):
        open_checkpoint(tmp_path / "a")


@pytest.mark.parametrize("target", [one for one in WRITTEN if one != "megatron"])
def test_what_is_converted_is_equal_in_the_other_format(tmp_path, target):
    written_by_torch(tmp_path / "a")
    source = open_checkpoint(tmp_path / "a")
    done = convert(source, target, tmp_path / "b", ranks=2)
    kept = ["weight"] if target == "hugging-face" else ["weight", "exp_avg", "exp_avg_sq"]
    there = open_checkpoint(tmp_path / "b")
    for kind in kept:
        again = all_of(there, "master" if target == "deepspeed-universal" and kind == "weight" else kind)
        assert all(np.array_equal(one, again[name]) for name, one in all_of(source, kind).items())
    assert ("rng" in done.left) == (target not in ("dcp", "torchtitan"))
    assert problems_of(there, read=lambda _: None) == []
    if target in ("dcp", "torchtitan", "shardwise"):
        assert there.step == 3
    if target == "dcp":
        assert list(differences_of(source, there)) == []


def test_torch_loads_what_was_resharded(tmp_path):
    tree = written_by_torch(tmp_path / "a")
    convert(open_checkpoint(tmp_path / "a"), "dcp", tmp_path / "b", ranks=3)
    moments = {n: {k: torch.zeros_like(v) for k, v in one.items()} for n, one in tree["optim"]["state"].items()}
    target = {
        "model": {n: torch.zeros_like(one) for n, one in tree["model"].items()},
        "optim": {"state": moments},
        "scheduler": {"last_epoch": 0}, "step": 0,
    }  # fmt: skip
    dcp.load(target, checkpoint_id=tmp_path / "b", no_dist=True)
    assert all(torch.equal(target["model"][name], one) for name, one in tree["model"].items())
    assert torch.equal(target["optim"]["state"]["head.weight"]["exp_avg"], tree["model"]["head.weight"] * 0.1)
    assert (target["step"], target["scheduler"]["last_epoch"]) == (3, 3)


def test_nothing_is_left_where_the_copy_is_not_proven(tmp_path, monkeypatch):
    written_by_torch(tmp_path / "a")
    import shardwise.run.runtime.formats.write as write

    saved = write._saved
    monkeypatch.setattr(
        write, "_saved", lambda file, one: saved(file, one * 2 if isinstance(one, torch.Tensor) else one)
    )
    with pytest.raises(DamagedCheckpoint, match="read back"):
        convert(open_checkpoint(tmp_path / "a"), "dcp", tmp_path / "b")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_a_damaged_source_is_not_converted(tmp_path):
    written_by_torch(tmp_path / "a")
    edited(tmp_path / "a", lambda m: entry(m).chunks.clear())
    with pytest.raises(DamagedCheckpoint, match=r"head\.weight"):
        convert(open_checkpoint(tmp_path / "a"), "dcp", tmp_path / "b")


def test_differences_are_counted_by_element(tmp_path):
    one, other = values(), values()
    other["head.weight"][2, 1] += 0.5
    del other["norm.weight"]
    for name, of in (("a", one), ("b", other)):
        dcp.save(of, checkpoint_id=tmp_path / name, no_dist=True)
    found = {d.tensor: d for d in differences_of(open_checkpoint(tmp_path / "a"), open_checkpoint(tmp_path / "b"))}
    assert (found["head.weight"].unequal, found["head.weight"].elements) == (1, 20)
    assert found["head.weight"].most == pytest.approx(0.5, rel=1e-5)
    assert (found["norm.weight"].only_in, set(found)) == ("a", {"head.weight", "norm.weight"})


def test_pieces_are_bounded_and_whole(tmp_path):
    dcp.save({"w": torch.zeros(100, 10)}, checkpoint_id=tmp_path, no_dist=True)
    found = list(pieces(open_checkpoint(tmp_path).tensors["w"], most=400))
    assert found == [(first, 10) for first in range(0, 100, 10)]


def test_an_index_must_name_every_tensor(tmp_path):
    safetensors.write(tmp_path / "model-1.safetensors", {"w": (torch.float32, (2,))}, lambda _: torch.ones(2))
    index = {"weight_map": {"w": "model-1.safetensors", "gone": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(DamagedCheckpoint, match="gone"):
        open_checkpoint(tmp_path)


def test_a_folder_nobody_knows_lists_nothing(tmp_path):
    with pytest.raises(ValueError, match="not a checkpoint"):
        open_checkpoint(tmp_path)
    answer = checkpoints_answer(tmp_path, verify=False, keep=0, read=lambda _: None)
    assert answer.checkpoints == []


def test_the_verb_reads_without_torch(tmp_path):
    written_by_torch(tmp_path / "a")
    code = "import sys; sys.modules['torch'] = None; from shardwise.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "checkpoints", str(tmp_path / "a"), "--verify", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (row,) = msgspec.json.decode(done.stdout)["checkpoints"]
    assert (done.returncode, row["format"], row["weights"], row["step"]) == (0, "torch dcp", 3, 3)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("model.model.norm.weight", "model.lm_head.weight"), ("model.norm.weight", "lm_head.weight")),
        (("model.norm.weight", "lm_head.weight"), ("model.norm.weight", "lm_head.weight")),
        (("model.layers.0.weight", "model.head.weight"), ("model.layers.0.weight", "model.head.weight")),
    ],
)
def test_weights_alone_lose_a_head_that_was_put_before_them(names, found):
    from shardwise.run.runtime.formats.names import classified

    assert tuple(parameter for _, parameter in classified(names).values()) == found
