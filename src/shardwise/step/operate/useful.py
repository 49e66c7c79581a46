"""What of a whole run's time goes into steps that are kept, where nobody asks how it is kept running."""

from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.step.operate.failures import rates_of
from shardwise.step.operate.run import Operation


def useful_share(model: Model, job: Job, cluster: Cluster, step_s: float) -> float:
    """With failures as the job states them, asynchronous saves at the best interval and restarts through the queue:
    what `operate` answers with where nothing else is said."""
    rates = rates_of(job.failures, cluster.gpus)
    run = Operation(model=model, job=job, cluster=cluster, step_s=step_s, work_s=step_s, rates=rates)
    return run.goodput().share
