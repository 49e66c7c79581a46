"""Muon, SOAP and Shampoo train in every layout as one process does, and send and keep what is predicted."""

import pytest

pytestmark = pytest.mark.xdist_group("matrices")

torch = pytest.importorskip("torch")
import msgspec  # noqa: E402
import numpy as np  # noqa: E402
from matrix_cells import (  # noqa: E402
    CPU,
    STEPS,
    Cell,
    cells,
    doubles,
    often,
    one_process,
    proven,
    settings_for,
    task_for,
    trained,
    weights_after,
    weights_of,
)
from msgspec.structs import replace  # noqa: E402
from training import Trained, assembled  # noqa: E402

from shardwise.plugins.optimizers import update_rule  # noqa: E402
from shardwise.run.runtime.checkpoints.folder import newest, present  # noqa: E402
from shardwise.run.runtime.checkpoints.save import save  # noqa: E402
from shardwise.run.runtime.checkpoints.state import load  # noqa: E402
from shardwise.run.runtime.checkpoints.stated import stated_forms  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings, checked  # noqa: E402
from shardwise.run.runtime.verify import fake_verify  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

WHOLE = [name for name in STEPS if update_rule(name).by_tensor]


@pytest.mark.parametrize("name", STEPS)
def test_as_one_process(name: str) -> None:
    for proof in proven(name, cells(name, few=True)):
        assert proof.worst <= 1e-9, proof.cell.name
        assert [row for row in proof.verification.messages if not row.equal] == [], proof.cell.name
        assert proof.verification.memory_error <= 0.02, (proof.cell.name, proof.verification.memory)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_every_cell(name: str) -> None:
    for proof in proven(name, cells(name)):
        assert proof.equal, (proof.cell.name, proof.worst)
        assert proof.bytes_equal, (proof.cell.name, proof.verification)


def test_another_layout_of_pieces_is_another_update() -> None:
    """Blockwise must differ from whole matrices, or nothing was tried above."""
    whole, pieces = one_process("muon", "llama", ()), one_process("muon", "llama", (("layers.0.q.weight", 0, 2),))
    assert np.abs(whole["layers.0.q.weight"] - pieces["layers.0.q.weight"]).max() > 1e-5


@pytest.mark.parametrize("name", WHOLE)
def test_weights_move(name: str) -> None:
    with doubles():
        task = task_for(name, Cell("llama", Policy(zero=0)))
        before, after = assembled([weights_after(task, name, 0)]), one_process(name, "llama", ())
    assert all(np.abs(after[key] - before[key]).max() > 1e-4 for key in before if key.startswith("layers"))


RESUMED = [
    Policy(dp=4, zero=1, matrix_layout="owned"),
    Policy(dp=4, zero=3, matrix_layout="all-to-all"),
    Policy(dp=2, tp=2, zero=2, matrix_layout="gather"),
    Policy(dp=4, ep=2, zero=1, matrix_layout="all-to-all"),
    Policy(pp=2, dp=2, zero=2, matrix_layout="owned"),
]


@pytest.mark.parametrize("name", [*WHOLE, "adafactor"])
def test_a_checkpoint_goes_on_in_another_layout(name: str, tmp_path) -> None:
    """Factors, bases and moments of every expert come back wherever their matrix is computed."""
    after, before = STEPS[name], STEPS[name] - 3
    rule = update_rule(name)
    layouts = [replace(policy, matrix_layout=policy.matrix_layout if rule.layouts else "") for policy in RESUMED
               if policy.tp == 1 or rule.exchange_cut == "gather" or rule.factored]  # fmt: skip

    def work(_: int) -> list[Trained]:
        with doubles(), often(name):
            engine = TrainingEngine(task_for(name, Cell("moe", layouts[0])), CPU, settings_for(name))
            trained(engine, 0, before)
            save(engine, tmp_path, before)
            found = []
            for policy in layouts:
                engine = TrainingEngine(task_for(name, Cell("moe", policy)), CPU, settings_for(name))
                trained(engine, load(engine, newest(tmp_path)), after)
                found.append(weights_of(engine))
        return found

    expected = one_process(name, "moe", ())
    for policy, ranks in zip(layouts, zip(*forked(4, work), strict=True), strict=True):
        whole = assembled(list(ranks))
        assert max(np.abs(whole[key] - expected[key]).max() for key in expected) <= 1e-9, policy
    sides = {"soap": ("row_basis", (8, 32, 32)), "shampoo": ("row_root", (8, 1024)), "muon": ("momentum_buffer", None),
             "adafactor": ("row_var", (8, 32, 1))}  # fmt: skip
    kind, shape = sides[name]
    tensors = present(newest(tmp_path))[0].tensors
    assert shape in (None, tensors[f"{kind}.layers.0.expert.up.weight"].shape)
    assert ("col_var" if name == "adafactor" else "exp_avg_sq") + ".head.head.weight" in tensors


def test_rounded_moments_come_back_in_the_layout_that_wrote_them(tmp_path) -> None:
    """They are stored in full: where blocks are the same, a run goes on bit for bit, and AdamW reads them too."""

    def run(first: int, steps: int, read: bool, name: str = "adamw-8bit") -> TrainingEngine:
        engine = TrainingEngine(task_for(name, Cell("llama", Policy(zero=0))), CPU, settings_for(name))
        with often(name):
            trained(engine, load(engine, newest(tmp_path)) if read else first, steps)
        return engine

    save(run(0, 3, read=False), tmp_path, 3)
    straight, resumed = assembled([weights_of(run(0, 5, read=False))]), assembled([weights_of(run(3, 5, read=True))])
    assert all(np.array_equal(straight[key], resumed[key]) for key in straight)
    other = assembled([weights_of(run(3, 5, read=True, name="adamw"))])
    assert 0 < max(np.abs(other[key] - straight[key]).max() for key in other) < 4e-3


@pytest.mark.parametrize("name", [*STEPS, "lion"])
def test_a_manifest_states_every_tensor(name: str, tmp_path) -> None:
    """What a checkpoint must have, by the optimizer's own word, is what a run writes."""
    task = task_for(name, Cell("moe", Policy(zero=0)))
    engine = TrainingEngine(task, CPU, settings_for(name))
    trained(engine, 0, 1)
    save(engine, tmp_path, 1)
    of = {"model": msgspec.to_builtins(task.model), "optimizer": {"name": name}, "batch": {"precision": "fp32"}}
    assert stated_forms(of) == present(newest(tmp_path))[0].tensors


def test_under_a_strategy_of_data_parallelism() -> None:
    """The mean gradient as a strategy trains as one process; workers that average now and then stay near it, and go on
    from a checkpoint of their own momenta."""
    settings = replace(settings_for("muon"), clip=0.0)

    def weights(sync: str, dp: int = 2) -> Trained:
        with doubles():
            engine = TrainingEngine(task_for("muon", Cell("llama", Policy(dp=dp, zero=0, sync=sync))), CPU, settings)
            trained(engine, 0, 4)
            return weights_of(engine)

    alone = assembled([weights("", 1)])
    found = forked(2, lambda _: [weights("psgd"), weights("diloco,every=2")])[0]
    mean, outer = (max(np.abs(assembled([each])[key] - alone[key]).max() for key in alone) for each in found)
    assert mean <= 1e-9 < outer < 0.02


def test_matrices_under_sync_and_offload_are_refused_where_they_do_not_run() -> None:
    for policy, cure in (
        (Policy(dp=2, zero=1, sync="psgd"), "--zero 0"),
        (Policy(zero=0, offload="optimizer"), "adamw"),
    ):
        with pytest.raises(ValueError, match=cure):
            checked(task_for("muon", Cell("llama", policy)))


@pytest.mark.parametrize(("name", "layout"), [("muon", "gather"), ("soap", "owned"), ("shampoo", "all-to-all")])
def test_single_ranks_on_a_group_that_pretends(name: str, layout: str) -> None:
    """What one rank of eight sends, an owner its own matrices."""
    policy = Policy(dp=4, tp=2, zero=1, sp=True, matrix_layout=layout)
    order = TrainingOrder(task=task_for(name, Cell("llama", policy)), settings=TrainingSettings(
        steps=1, optimizer=settings_for(name)))  # fmt: skip
    for rank in (0, 5):
        result, _ = fake_verify(order, [rank])
        assert [row for row in result.messages if not row.equal] == []
        assert any(row.phase == "update" for row in result.messages) == (name != "shampoo" or layout == "all-to-all")
