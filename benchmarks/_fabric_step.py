"""How long a whole step takes at flow level, and what it says beside the simulation; one thread's processor time.

study_1024_s: everything `shardwise fabric` computes for Llama 3 70B on 1,024 H100 (placements priced, joint loop, load
over time). loop_1024_s: demand of the planned placement and the joint loop alone. loop_rows, loop_states: kinds of
traffic and distinct sets of them that ran together. alone_gap: the loop with every kind alone over the simulated step,
less one.
"""

import time

from shardwise.fabric.demand import demand_of
from shardwise.question.studies.fabric.build import fabric_report
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.step.simulate.joint import joint_step
from shardwise.work.case import case_of


def measure() -> dict[str, float]:
    policy, job = Policy(tp=8, pp=4, dp=32), Job(seq=8192, global_batch=512)
    start = time.process_time()
    found = fabric_report(
        case_of(model_of("llama-3-70b"), cluster_of("dgx-h100:1024"), job, stack_of("megatron-core")), policy
    )
    study = time.process_time() - start
    start = time.process_time()
    demand = demand_of(found.load)
    step = joint_step(found.loop.simulation, demand)
    loop = time.process_time() - start
    return {
        "study_1024_s": study,
        "loop_1024_s": loop,
        "loop_rows": len(demand.shared.rows),
        "loop_states": len(step.kinds),
        "alone_gap": found.report.unshared_s / found.report.simulated_s - 1.0,
    }
