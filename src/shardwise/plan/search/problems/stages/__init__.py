"""The stages of a pipeline: what each holds and where it runs."""

from shardwise.plan.search.problems.stages._build import PLAIN_MIX, GpuGroup, stage_problem
from shardwise.plan.search.problems.stages._problem import StageAssignment, StageOption, StageProblem
from shardwise.plan.search.problems.stages._space import PROBLEM

__all__ = ["PLAIN_MIX", "PROBLEM", "GpuGroup", "StageAssignment", "StageOption", "StageProblem", "stage_problem"]
