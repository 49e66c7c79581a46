"""Command lines of public scripts as bash recorded them: what is read of them is what was started."""

import shlex

import pytest

from formats.script_corpus import launches, recorded
from shardwise.programs.formats._shell import read_shell

SCRIPTS = recorded()


def test_records_are_of_many_repositories_and_halves():
    assert len(SCRIPTS) >= 300
    assert len({script.repository for script in SCRIPTS}) >= 30
    assert 0.4 < sum(script.set_aside for script in SCRIPTS) / len(SCRIPTS) < 0.6
    assert all(launches(call) or call[0] in ("srun", "ray", "mpirun") for script in SCRIPTS for call in script.calls)


@pytest.mark.parametrize("part", range(8))
def test_command_lines_come_back_word_by_word(part):
    for script in SCRIPTS[part::8]:
        for call in script.calls:
            if call[0] in ("srun", "mpirun", "ray", "sbatch"):
                continue  # may hold a script of their own, which is followed
            quoted = read_shell(shlex.join(call)).commands
            arrays = read_shell(
                f'declare -a WORDS=({shlex.join(call[1:])})\n{call[0]} "${{WORDS[@]}}"\n'
                f'run() {{ {call[0]} "$@"; }}\nrun {shlex.join(call[1:])}'
            ).commands
            assert quoted == [call], (script.repository, script.path)
            assert arrays == [call, call], (script.repository, script.path)
