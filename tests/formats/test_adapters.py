"""Adapters in launch files: what is written is read back, and what cannot be stated is refused by name."""

import json
import shlex

import pytest

from shardwise import open_question_of, plan_of, question_of
from shardwise.programs.formats import Launch, expressed, format_of, formats, question_of_launch, read_launch, settled
from shardwise.question import options_of
from shardwise.question.command import TARGETS, WRITE_ADAPTERS
from shardwise.show.cli import main

ON = "2x8xa100-40@100Gbps/node"


def launched(target, tune, **options):
    shape = {"dp": 16, "zero": 3} | options
    question = question_of("llama-3-8b", on=ON, tune=tune, stack=format_of(target).stack, seq=2048, global_batch=64,
                           **shape)  # fmt: skip
    launch = Launch(question.case, settled(question.policy, question.case), called="llama-3-8b")
    return expressed(format_of(target), launch)[0]


def read_back(target, launch, folder):
    written = format_of(target).write(launch)
    for name, text in written.files.items():
        (folder / name).write_text(text)
    return read_launch([folder / name for name in written.files])


def test_targets_are_formats():
    assert set(TARGETS) <= set(formats())
    assert set(WRITE_ADAPTERS) == {name for name, each in formats().items() if each.adapters and name in TARGETS}


ADAPTERS = {
    "lora": "lora,rank=16,targets=all", "lora,rank=8,targets=q_proj,v_proj": "lora,rank=8,targets=q_proj,v_proj",
    "dora,rank=4,targets=mlp": "dora,rank=4,targets=down_proj,gate_proj,up_proj", "qlora": "qlora,rank=16,targets=all",
    "lora,base=nf4-single": "lora,rank=16,targets=all,base=nf4-single",
}  # fmt: skip
SHAPES = {
    "trl": ({}, {"cp": 4, "dp": 4}, {"zero": 0, "recompute": "full"}),
    "axolotl": ({}, {"cp": 2, "dp": 8, "shard_group": 8}, {"recompute": "full"}, {"zero": 0, "recompute": "full"}),
    "llama_factory": ({"recompute": "full"}, {"zero": 2, "shard_group": 8}, {"zero": 0}),
}


@pytest.mark.parametrize(("target", "tune", "shape"), [
    *((target, tune, {}) for target in SHAPES for tune in ADAPTERS),
    *((target, "lora", shape) for target, shapes in SHAPES.items() for shape in shapes),
])  # fmt: skip
def test_tuners_write_what_they_read(target, tune, shape, tmp_path):
    launch = launched(target, tune, **shape)
    form, found = read_back(target, launch, tmp_path)
    assert form.name == target
    assert found.tune == ADAPTERS[tune]
    assert settled(found.policy, launch.case) == launch.policy
    assert not [text for text in (*found.unmodelled, *found.not_modelled) if "packing" in text or "dp_shard" in text]
    again = question_of_launch(form, found, launch.case.model, launch.case.cluster, options_of({}))
    assert again.job.tuning.tune_text == ADAPTERS[tune]
    assert again.job.precision.name == "bf16"
    assert (again.stack.name, again.job.global_batch) == (launch.case.stack.name, 64)
    if launch.policy.cp > 1:
        assert again.stack.abilities.context_parallel == launch.case.stack.abilities.context_parallel


@pytest.mark.parametrize("stack", ["trl", "axolotl", "llama-factory", "accelerate"])
def test_a_plan_for_a_tuner_launches_there(stack):
    plan = plan_of("llama-3-8b", ON, tune="lora", stack=stack, seq=2048, global_batch=64)
    take = plan.recommended.policy
    assert take.tp == 1  # its script loads the model whole
    assert plan.next[1].endswith(f"--to {stack.replace('-', '_')}")
    assert not any("is now" in note for note in plan.notes) or stack == "accelerate"


def test_the_script_has_each_argument_once():
    launch = launched("trl", "qlora")
    text = format_of("trl").write(launch).files["train.sh"]
    words = [word for word in shlex.split(text, comments=True) if word.startswith("--")]
    assert len(words) == len(set(words))


def test_accelerate_names_the_adapters_that_the_script_has_to_add():
    notes = format_of("accelerate").write(launched("accelerate", "lora,rank=8,targets=q_proj,v_proj")).notes
    assert any("LoraConfig(r=8, target_modules=['q_proj', 'v_proj'])" in note for note in notes)


@pytest.mark.parametrize(("target", "options", "field"), [
    ("megatron", {"tune": "lora"}, "tune"), ("trl", {"freeze": "first=2"}, "freeze"),
    ("axolotl", {"optimizer": "lion", "stack": "axolotl"}, "optimizer"),
])  # fmt: skip
def test_what_cannot_be_stated_is_refused(target, options, field):
    question = open_question_of("llama-3-8b", on="8xh100", **options)
    policy = question_of("llama-3-8b", on="8xh100", dp=8, zero=3).policy
    launch, form = Launch(question.case, settled(policy, question.case)), format_of(target)
    with pytest.raises(ValueError, match=f"^{field}: "):
        form.write(expressed(form, launch)[0])


def test_the_target_follows_the_stack(capsys):
    asked = ["export", "llama-3-8b", "--on", ON, "--seq", "2048", "--global-batch", "64", "--tune", "lora"]
    for stack, title in (("axolotl", "Axolotl"), ("llama-factory", "LLaMA-Factory"), ("trl", "TRL")):
        assert main([*asked, "--stack", stack, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["target"] == format_of(stack).name, title
