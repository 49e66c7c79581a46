"""Public command lines, read by hand: no value differs in silence."""

import pytest

from formats.by_hand import judged, labelled

FILES = [(half, file) for half in ("in_view", "set_aside") for file in labelled(half)]
KNOWN = {
    "simplescaling/s1:eval/rebase/inference_scaling/finetune/gpt-accelera/scripts_finetune/finetune_sft.sh": "micro",
}
"""what is still read wrong"""


@pytest.mark.parametrize("half", ["in_view", "set_aside"])
def test_values_are_right_named_or_refused(half, tmp_path):
    wrong = {}
    for number, file in enumerate(labelled(half)):
        (place := tmp_path / str(number)).mkdir()
        if silent := judged(file, place).silent:
            wrong[file.source] = silent
    assert set(wrong) <= set(KNOWN), wrong
    assert all(KNOWN[source] in text for source, texts in wrong.items() for text in texts)


def test_enough_files_of_enough_repositories():
    assert len(FILES) >= 120
    assert len({file.source.partition(":")[0] for _, file in FILES}) >= 25
