"""Words of a `software` text are facts: of a program nobody knows they are all there is to go by."""

from pathlib import Path

import pytest

from shardwise.spec.software import Stack, match_of, named, part_of, stack_for, stack_of, with_words, words
from shardwise.spec.software.words import said_in


@pytest.mark.parametrize(
    ("software", "stack", "note"),
    [
        ("Zeta", "generic", "is not known; taken as generic"),
        ("Zeta (PyTorch 2.8, torch.compile)", "torch-ddp",
         "is not known; taken as torch-ddp by 'pytorch', 'torch.compile'"),
        ("Zeta (FlashAttention-3)", "generic", "is not known; taken as generic by 'flashattention-3'"),
        ("Zeta (PyTorch FSDP2, eager)", "torch-fsdp2", "is taken as torch-fsdp2 by 'fsdp2'"),
        ("Zeta (DDP, torch.compile)", "torch-ddp", "is taken as torch-ddp by 'ddp', 'torch.compile'"),
    ],
)  # fmt: skip
def test_a_program_nobody_knows_is_what_its_words_say(software: str, stack: str, note: str) -> None:
    found = match_of(software)
    assert found.stack.name == stack
    assert found.note == f"software {software!r} {note}"


def test_a_program_with_a_name_keeps_its_stack() -> None:
    for software in ("torchtitan (PyTorch 2.8)", "Megatron-LM (PyTorch)", "litgpt (PyTorch FSDP)"):
        assert match_of(software).known
        assert not match_of(software).platform


def test_a_platform_alone_says_nothing_of_a_run_that_is_cut() -> None:
    assert stack_for("Zeta (PyTorch)").name == "torch-ddp"
    cut = stack_for("Zeta (PyTorch)", sharded=True)
    assert cut.name == "generic"
    assert named(cut).stack.name == "generic"


def _compiled(stack: Stack) -> bool:
    return not stack.kernels.one_kernel_per_op


@pytest.mark.parametrize(
    ("software", "compiled"),
    [
        ("Zeta (FSDP, torch.compile)", True), ("Zeta (FSDP, nvFuser)", True), ("Zeta (FSDP, w/o torch.compile)", False),
        ("Zeta (FSDP, non-compiled)", False), ("Zeta (FSDP, torch.compile, then eager)", False),
        ("torchtitan (torch.compile against eager)", True), ("torchtitan (not compiled)", False),
    ],
)  # fmt: skip
def test_words_that_contradict_each_other_are_not_believed(software: str, compiled: bool) -> None:
    """The program's own habit stays."""
    assert _compiled(stack_for(software)) == compiled


def test_a_model_that_is_compiled_with_its_loss_keeps_fewer_bytes_of_a_logit() -> None:
    """One that returns the loss; blocks that are sharded are compiled one by one, and the loss is not."""
    for software in ("Zeta (PyTorch, torch.compile)", "Hugging Face Trainer, torch.compile", "Zeta (DDP, compiled)"):
        assert stack_for(software).loss.loss_logit_bytes == 6.0
    for software in ("Zeta (FSDP2, torch.compile)", "Zeta (PyTorch)"):
        assert stack_for(software).loss.loss_logit_bytes == 12.0


@pytest.mark.parametrize(
    ("notes", "settings"),
    [
        ("weights and optimizer in bf16; DDP inferred", {"precision_bf16": "bf16-pure"}),
        ("autocast with weights in fp32", {"precision_bf16": "autocast"}),
        ("fused norm, rotation, SwiGLU and loss", {"fused_norm": True, "fuses_rotation": True, "fused_glu": True}),
        ("fused norms and loss", {"fused_norm": True, "fuses_rotation": False}),
        ("weights in bf16, AdamW fused", {"precision_bf16": "bf16-pure", "optimizer_passes": 1.0}),
    ],
)
def test_words_of_kernels_and_precision_are_believed(notes: str, settings: dict[str, object]) -> None:
    stack, _ = with_words(stack_for("Hugging Face Trainer"), notes)
    assert {name: stack.setting(name) for name in settings} == settings


def test_weights_in_16_bits_are_reduced_as_the_program_does() -> None:
    for software, recipe in (("FSDP", "bf16-pure"), ("FSDP2", "bf16-pure-reduce32"), ("DDP", "bf16-pure")):
        assert stack_for(f"Zeta ({software}, pure bf16)").abilities.precision_bf16 == recipe


def test_kernels_of_others_are_no_fact_of_a_program_with_its_own() -> None:
    for software in ("Megatron-LM", "MaxText"):
        for word in ("Liger", "DeepSpeed ZeRO", "apex"):
            assert stack_for(f"{software} ({word})").kernels == stack_of(stack_for(f"{software} ({word})").name).kernels


def test_a_word_says_where_it_comes_from() -> None:
    origin = stack_for("Zeta (FSDP, pure bf16)").origin("precision_bf16")
    assert origin.kind == "read"
    assert "'pure bf16' in the text" in str(origin)


def test_every_word_of_the_table_changes_something_that_is_there() -> None:
    for word in words._words():
        assert word.source
        assert word.says != words.Fact() or word.denied != words.Fact()
        for fact in (word.says, word.denied):
            assert fact.takes in ("", "compiled", "uncompiled") or stack_of(fact.takes).stated
            for setting in fact.settings:
                assert part_of(setting)
        for text in word.words:
            assert text == text.lower()
            assert any(said.word == word for said in said_in(f"x ({text})")), text


def test_a_slip_in_the_table_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = tmp_path / "words.toml"
    table.write_text('date = "2026-11-17"\n[[word]]\nabout = "x"\nwords = ["x"]\nsource = "y"\nmeans = 1\n')
    monkeypatch.setattr(words, "TABLE", table)
    words._words.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"words\.toml: .*means"):
            words._words()
    finally:
        words._words.cache_clear()


@pytest.mark.parametrize(
    ("text", "kernel"),
    [("PyTorch 2.0 DDP", "flash1"), ("PyTorch 2.1.2 DDP", "flash1"), ("PyTorch 2.10 DDP", "sdpa"), ("DDP", "sdpa")],
)
def test_the_attention_of_pytorch_is_as_old_as_it(text: str, kernel: str) -> None:
    assert with_words(stack_of("torch-ddp"), text)[0].kernels.attention_kernel == kernel


def test_kernels_of_a_package_do_not_age_with_pytorch() -> None:
    told = stack_of("torch-ddp").changed(attention_kernel="flash2")
    assert with_words(told, "PyTorch 2.0")[0].kernels.attention_kernel == "flash2"


@pytest.mark.parametrize(("text", "hidden"), [
    ("Megatron-LM (tensor-parallel communication overlapped)", (False, False, True)),
    ("Megatron-LM (overlap-grad-reduce, overlap-param-gather)", (True, True, False)),
    ("Megatron-LM (overlap of gradients, parameters and tensor parallelism)", (True, True, True)),
    ("Megatron-LM (no overlap)", (False, False, False)),
])  # fmt: skip
def test_a_text_says_what_runs_under_compute(text: str, hidden: tuple[bool, bool, bool]) -> None:
    found = with_words(stack_of("megatron-core@lm"), text)[0].overlap
    assert (found.overlap_grad, found.overlap_param, found.overlap_tp) == hidden
