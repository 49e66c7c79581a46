"""Adapters in launch files: what is written is read back, and what cannot be stated is refused by name."""

import shlex

import pytest

from shardwise import open_question_of, question_of
from shardwise.programs.formats import Launch, expressed, format_of, formats, question_of_launch, read_launch, settled
from shardwise.question import options_of
from shardwise.question.command import TARGETS, WRITE_ADAPTERS

ON = "2x8xa100-40@100Gbps/node"


def launched(target, tune, **options):
    question = question_of("llama-3-8b", on=ON, tune=tune, stack=format_of(target).stack, seq=2048, global_batch=64,
                           dp=16, zero=3, **options)  # fmt: skip
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


@pytest.mark.parametrize(
    ("tune", "read"),
    [
        ("lora", "lora,rank=16,targets=all"),
        ("lora,rank=8,targets=q_proj,v_proj", "lora,rank=8,targets=q_proj,v_proj"),
        ("dora,rank=4,targets=mlp", "dora,rank=4,targets=down_proj,gate_proj,up_proj"),
        ("qlora", "qlora,rank=16,targets=all"),
        ("lora,base=nf4-single", "lora,rank=16,targets=all,base=nf4-single"),
    ],
)
def test_trl_writes_what_it_reads(tune, read, tmp_path):
    launch = launched("trl", tune)
    form, found = read_back("trl", launch, tmp_path)
    assert form.name == "trl"
    assert found.tune == read
    assert settled(found.policy, launch.case) == launch.policy
    again = question_of_launch(form, found, launch.case.model, launch.case.cluster, options_of({}))
    assert again.job.tuning.tune_text == read
    assert again.job.precision.name == "bf16"


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
])  # fmt: skip
def test_what_cannot_be_stated_is_refused(target, options, field):
    question = open_question_of("llama-3-8b", on="8xh100", **options)
    policy = question_of("llama-3-8b", on="8xh100", dp=8).policy
    with pytest.raises(ValueError, match=f"^{field}: "):
        expressed(format_of(target), Launch(question.case, policy))
