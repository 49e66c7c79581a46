"""A step that fills and drains its pipeline several times: the same in every verb."""

import pytest

from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.table import MeasuredRow
from shardwise.programs.formats import formats
from shardwise.programs.formats._contract import Launch, gaps_of
from shardwise.show.cli import main
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import verdict_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import simulate
from shardwise.work.case import case_of

MODEL, CLUSTER = model_of("llama-3-8b"), cluster_of("4x8xh100")
STAGED = Policy(dp=8, pp=4)


def step(batch, passes=1, policy=STAGED, stack="megatron-core"):
    job = Job(seq=4096, global_batch=batch, pipeline_passes=passes)
    return estimate(case_of(MODEL, CLUSTER, job, stack_of(stack)), Policies.of([policy]), every_stage=True)


def test_every_pass_has_its_bubble_and_the_optimizer_runs_once():
    several, one = step(256, 4).times.parts, step(64).times.parts
    for part in ("bubble", "forward", "backward"):
        assert several[part][0] == pytest.approx(4 * one[part][0])
    for part in ("optimizer", "grad_comm", "param_comm"):
        assert several[part][0] == pytest.approx(one[part][0])


def test_without_stages_there_is_nothing_to_fill():
    flat = Policy(dp=32, zero=1)
    assert step(256, 4, flat).times.step_s[0] == step(256, 1, flat).times.step_s[0]


def test_as_many_micro_batches_are_held_as_in_one_pass():
    piled = Policy(dp=8, pp=4, schedule="gpipe")
    assert step(256, 4, piled).memory.peak[0] == pytest.approx(step(64, 1, piled).memory.peak[0])
    assert step(256, 4, piled).memory.peak[0] < step(256, 1, piled).memory.peak[0]


@pytest.mark.parametrize(
    "policy",
    [STAGED, Policy(dp=8, pp=4, vpp=2, schedule="interleaved"), Policy(dp=8, pp=4, vpp=2, schedule="zb_v", zero=2)],
    ids=lambda policy: policy.schedule,
)
def test_the_simulation_runs_the_passes(policy):
    stack = stack_of("megatron-core").changed(reduces_last="never")
    found = simulate(case_of(MODEL, CLUSTER, Job(seq=4096, global_batch=256, pipeline_passes=4), stack), policy)
    assert found.program.micro_batches == 32
    assert found.step_s == pytest.approx(float(found.closed.times.step_s[0]), rel=0.01)


def test_parameters_that_stages_keep_are_gathered_for_every_pass():
    policy = Policy(dp=8, pp=4, zero=3)
    several, one = (
        {
            m.op: m.count[0]
            for m in step(256, passes, policy, "torchtitan").work.parameter_messages
            if m.packed == "by unit"
        }
        for passes in (4, 1)
    )
    assert several == {op: 4 * count for op, count in one.items()}


def test_a_table_of_runs_and_an_estimate_say_the_same():
    text = {
        "source": "a page", "model": "llama-3-8b", "gpu": "H100", "gpus": "32", "seq": "4096", "global_batch": "128",
        "micro_batch": "1", "tp": "1", "pp": "4", "vpp": "1", "cp": "1", "dp": "8", "zero_stage_or_fsdp": "1",
        "recompute": "none", "software": "torchtitan", "notes": "local batch 4",
    }  # fmt: skip
    found = predict([MeasuredRow(row=1, text=text)])[0]
    assert found.policy is not None
    told = step(128, 4, found.policy, "torchtitan")
    assert found.step_s == pytest.approx(float(told.times.step_s[0]), rel=1e-3)


@pytest.mark.parametrize("target", ["torchtitan", "automodel"])
def test_what_is_written_for_a_program_reads_back(target, tmp_path, capsys):
    words = ["export", "llama-3-8b", "--on", "4x8xh100", "--pp", "4", "--zero", "3", "--seq", "4096"]
    words += ["--global-batch", "128", "--pipeline-passes", "4", "--to", target, "--out", str(tmp_path / target)]
    if target == "torchtitan":
        words += ["--version", "0.2.2"]
    assert main(words) == 0
    file = next((tmp_path / target).glob("*.toml" if target == "torchtitan" else "automodel.yaml"))
    capsys.readouterr()
    main(["check", str(file), "--model", "llama-3-8b", "--on", "4x8xh100", "--json"])
    assert '"pipeline_passes": 4' in capsys.readouterr().out


def test_what_cannot_be_says_why():
    job = Job(seq=4096, global_batch=128, pipeline_passes=3)
    assert "x 3 passes through the pipeline = 24" in verdict_of(MODEL, CLUSTER, job, STAGED).why
    case = case_of(MODEL, CLUSTER, Job(seq=4096, global_batch=128, pipeline_passes=2), stack_of("megatron-core"))
    with pytest.raises(ValueError, match="whole batch through the pipeline"):
        gaps_of(formats()["megatron"], Launch(case, STAGED))
    with pytest.raises(ValueError, match="pipeline_passes is 0"):
        Job(seq=4096, global_batch=128, pipeline_passes=0)
