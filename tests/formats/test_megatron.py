"""What Megatron's arguments mean where they say nothing, and how stages of different length are written."""

import pytest

from launches import launch_of
from shardwise.programs.formats import Known, expressed, format_of, read_launch
from shardwise.programs.formats._layout import layers_in, layout_text
from shardwise.spec.policy import Policy


def read(tmp_path, words, gpus=64, layers=32):
    (tmp_path / "a.sh").write_text(f"python pretrain_gpt.py --micro-batch-size 1 {words}\n")
    return read_launch([tmp_path / "a.sh"], Known(gpus, layers))[1]


def test_a_layout_is_read_as_megatron_reads_it():
    # its own parser: pp 4, vpp 2, 32 layers
    assert layers_in("Et*3|(t*4|)*6t*5L") == (3, 4, 4, 4, 4, 4, 4, 5)
    assert layers_in(layout_text((3, 4, 0, 5), 1)) == (3, 4, 0, 5)


@pytest.mark.parametrize("text", ["Etx|tL", "", "t*99999|L", "(t*9999)*9999"])
def test_a_layout_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="layout"):
        layers_in(text)


def test_experts_are_cut_as_tp_where_nothing_is_said(tmp_path):
    words = "--tensor-model-parallel-size 2 --expert-model-parallel-size 8"
    assert read(tmp_path, words).policy.etp == 2
    assert read(tmp_path, words + " --expert-tensor-parallel-size 1").policy.etp == 1


def test_the_way_ranks_are_laid(tmp_path):
    words = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --use-tp-pp-dp-mapping"
    assert read(tmp_path, words).policy.order == "tp-pp-cp-dp"
    found = read(tmp_path, words + " --context-parallel-size 2")
    assert any("tp-cp-pp-dp" in text for text in found.not_modelled)


def test_recomputed_layers_are_counted_by_chunk(tmp_path):
    words = "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 --tensor-model-parallel-size 2 "
    found = read(tmp_path, words + "--recompute-granularity full --recompute-method block --recompute-num-layers 1")
    assert (found.policy.vpp, found.policy.recompute_layers) == (4, 4)


def test_transfers_do_not_overlap_without_chunks(tmp_path):
    words = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4"
    assert not read(tmp_path, words).policy.overlap_pp
    chunks = " --num-virtual-stages-per-pipeline-rank 2"
    assert read(tmp_path, words + chunks).policy.overlap_pp
    assert not read(tmp_path, words + chunks + " --no-overlap-p2p-communication").policy.overlap_pp


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(dp=4, tp=2), {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
        (Policy(dp=4, tp=2, zero=3), {}),
        (Policy(dp=8), {}),
    ],
)
def test_the_environment_belongs_to_the_flags(policy, said):
    target = format_of("megatron")
    launch, _ = expressed(target, launch_of(target, policy, "llama-3-8b"))
    found = target.write(launch).environment
    assert {name: value for name, value in found.items() if name.startswith("CUDA")} == said


def test_stages_that_the_program_cannot_split_evenly_become_a_layout():
    target = format_of("megatron")
    launch, _ = expressed(target, launch_of(target, Policy(dp=2, pp=3), "llama-3-8b"))
    script = target.write(launch).files["train.sh"]
    (layout,) = [word for word in script.split() if word.startswith("'E")]
    assert sum(layers_in(layout)) == 32
    assert "virtual" not in script
