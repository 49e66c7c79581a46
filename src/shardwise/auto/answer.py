"""What `auto` does with a program: understood, planned for a cluster, proven on a small copy, and trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardwise.auto.choose import Choice, chosen
from shardwise.auto.program import UserProgram
from shardwise.auto.proof import Proof
from shardwise.auto.prove import plan_of, proven, truth_of
from shardwise.auto.small import few_blocks, few_ranks
from shardwise.auto.trained import trained
from shardwise.auto.watch import samples_of
from shardwise.spec.cluster import Cluster

PROOF_STEPS = 20

Makes = Callable[[int, str], UserProgram]
"""a program with batches for so many steps, in this precision"""


@dataclass(frozen=True)
class AutoAnswer:
    """The split to make, its proof, and the losses of training with it."""

    choice: Choice
    proof: Proof
    losses: list[float]


def answered(make: Makes, cluster: Cluster, fix: Sequence[str], steps: int, said: Callable[[str], None]) -> AutoAnswer:
    """`steps`: to train, with as many ranks of this machine as the plan has; 0: it is not trained."""
    said("understanding the model")
    program = make(PROOF_STEPS, "float64")
    choice = chosen(program, cluster, fix)
    said(f"proving {choice.plan.degrees.text} on a small copy")
    fewer = few_ranks(choice.plan.degrees, samples_of(program.batches[0]))
    small = few_blocks(program, fewer)
    truth = truth_of(small)
    proof = proven(small, plan_of(small, fewer), truth)
    if not steps or not proof.equal:
        return AutoAnswer(choice, proof, [])
    said(f"training {steps} steps on {choice.plan.degrees.ranks} ranks")
    return AutoAnswer(choice, proof, trained(make(steps - 1, "float32"), choice.plan, truth.clips))
