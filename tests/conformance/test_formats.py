"""Every target keeps the contract: what it writes it reads back as the same policy; what it cannot state it names."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from launches import MODELS, launch_of, policies
from shardwise.programs.formats import Known, expressed, format_of, formats, gaps_of, read_launch, settled
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of

FORMS = [(name, version) for name, target in formats().items() for version in target.versions or ("",)]


def written_and_read(name, version, policy, model, folder: Path):
    """(what the target runs, what is read back), or None where it cannot."""
    target = format_of(name)
    launch = launch_of(target, policy, model, version)
    if launch is None:
        return None
    try:
        launch, _ = expressed(target, launch)
    except ValueError:
        return None
    files = target.write(launch).files
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    found_in, found = read_launch([folder / file for file in files], Known(layers=launch.case.model.layers))
    assert found_in.name == name
    return launch, found


@pytest.mark.parametrize(("name", "version"), FORMS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies(), model=st.sampled_from(MODELS))
def test_what_is_written_is_read_back(name, version, policy, model, tmp_path):
    both = written_and_read(name, version, policy, model, tmp_path)
    assume(both is not None)
    launch, found = both
    assert settled(found.policy, launch.case) == launch.policy
    assert found.gpus == launch.policy.gpus
    assert found.seq in (None, launch.case.job.seq)
    assert found.global_batch in (None, launch.case.job.global_batch)


@pytest.mark.parametrize(("name", "version"), FORMS)
def test_contract(name, version):
    target = format_of(name)
    assert target.title
    assert stack_of(target.stack)
    assert "/" in target.source, "where the option names were read"
    zeros = [launch_of(target, Policy(dp=8, zero=zero), "llama-3-8b", version) for zero in (3, 1)]
    launch = next(each for each in zeros if all(gap.instead is not None for gap in gaps_of(target, each)))
    for gap in gaps_of(target, launch):
        assert gap.why
    written = target.write(expressed(target, launch)[0])
    assert "train.sh" in written.files
    assert all(text.endswith("\n") for text in written.files.values())
    for variable in written.environment:
        assert f"export {variable}=" in written.files["train.sh"]


@pytest.mark.parametrize(("name", "version"), FORMS)
def test_what_cannot_be_stated_is_named(name, version):
    target = format_of(name)
    launch = launch_of(target, Policy(dp=8, offload="activations"), "llama-3-8b", version)
    with pytest.raises(ValueError, match=r"^(offload|zero): "):
        expressed(target, launch)
