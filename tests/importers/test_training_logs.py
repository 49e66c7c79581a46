"""Logs of every program: recognised by what stands in them, steps read right among junk, other lines left alone."""

import re

import pytest
from log_samples import BATCH, GPUS, SAMPLES, TOKENS, log_of

from shardwise.measured.diagnose.pace import pace_of, series_of
from shardwise.programs.importers.logs import log_forms, parse_log
from shardwise.programs.importers.training_log import parse

STEADY = [4.0, 4.04, 4.02, 3.98, 4.06, 4.0, 4.02, 3.96, 4.04, 4.0, 4.02, 4.0]
TIMES = [24.0, 8.0, *STEADY]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_form_gives_the_times_of_its_steps(name):
    log = parse_log(log_of(name, TIMES))
    assert log is not None
    assert log.program == SAMPLES[name].title
    assert len(log.steps) == len(TIMES)
    assert series_of(log).exact == SAMPLES[name].exact
    series = series_of(log, TOKENS, GPUS, BATCH)
    assert series.exact
    assert series.seconds == pytest.approx(TIMES, rel=6e-3)
    found = pace_of(series, log)
    assert (found.dropped, found.records) == (2, len(STEADY))
    assert re.search(r"up to (?:5\.9\d|6|6\.0\d) times", found.dropped_why)
    assert found.mean_s == pytest.approx(sum(STEADY) / len(STEADY), rel=5e-3)


def test_every_form_has_a_sample():
    by_lines = {"automodel"}  # by the clocks of its lines, which test_real_logs covers
    assert {name.split()[0] for name in SAMPLES if name != "axolotl"} == set(log_forms()) - by_lines


@pytest.mark.parametrize("name", ["megatron", "torchtitan", "nemo", "deepspeed", "verl", "huggingface", "olmo"])
def test_memory_and_loss_are_read(name):
    log = parse_log(log_of(name, STEADY))
    assert log is not None
    peaks = [step.peak_bytes for step in log.steps if step.peak_bytes]
    assert max(peaks) == pytest.approx(60 * 2**30, rel=0.03)
    if name not in ("deepspeed", "verl"):
        assert log.steps[0].loss is not None


def test_numbers_and_batch_of_megatron():
    log = parse_log(log_of("megatron", STEADY))
    assert log is not None
    assert [step.step for step in log.steps] == list(range(1, len(STEADY) + 1))
    assert (log.steps[0].global_batch, log.steps[0].flops_per_s) == (BATCH, pytest.approx(412.3e12))


def test_primus_prints_now_and_the_average():
    text = "iteration  4700/ 4768 | elapsed time per iteration (ms): 1460.8/1450.4 |\n" * 3
    assert parse(text).step_s == pytest.approx(1.4608)


def test_of_two_programs_in_one_log_the_one_with_seconds_is_taken():
    lines = [line for n in range(1, 9) for name in ("deepspeed", "megatron")
             for line in SAMPLES[name].write(n, 4.0, 1e9 + n)]  # fmt: skip
    log = parse_log("\n".join(lines))
    assert log is not None
    assert log.program == "Megatron"


def test_the_summary_of_a_trainer_is_all_a_short_run_says():
    text = "{'train_runtime': 197.4947, 'train_samples_per_second': 5.063, 'train_steps_per_second': 0.5, 'epoch': 1.0}"
    log = parse_log(text)
    assert log is not None
    assert log.mean is not None
    assert (log.steps, log.mean.steps_per_s) == ((), 0.5)


def test_bars_of_other_things_than_training_are_left_out():
    bar = "{}: 50%|## | 10/20 [00:30<00:30, 2.00it/s]\n"
    text = bar.format("Validation DataLoader 0") + bar.format("Map") + bar.format("Epoch 0")
    log = parse_log(text)
    assert log is not None
    assert len(log.steps) == 1


def test_what_is_no_log_is_none():
    for text in ("", "epoch 1 done\n", "tps: many\n", "step: 3 tps: 1\n" * 5, "\x00" * 100, "[batch=3/4]:\n"):
        assert parse_log(text) is None


def test_facts_of_a_log_for_calibration():
    facts = parse(log_of("maxtext", TIMES))
    assert (facts.software, facts.steps, facts.step_s) == ("MaxText", len(STEADY), pytest.approx(4.01))
    with pytest.raises(ValueError, match="from: no training step"):
        parse("nothing\n")
    with pytest.raises(ValueError, match="neither the time of a step"):
        parse("{'train_runtime': 19.4, 'train_samples_per_second': 5.063}")


@pytest.mark.parametrize("prefix", ["[rank{}]:", "[default{}]:", "{}: "])
def test_of_ranks_that_all_print_one_is_read(prefix):
    lines = [prefix.format(rank) + line for number, seconds in enumerate(STEADY, 1) for rank in (2, 0, 1)
             for line in SAMPLES["maxtext"].write(number, seconds * (1 + rank / 100), 0.0)]  # fmt: skip
    log = parse_log("\n".join(lines))
    assert log is not None
    assert [step.seconds for step in log.steps] == pytest.approx([1.02 * each for each in STEADY], abs=2e-3)
