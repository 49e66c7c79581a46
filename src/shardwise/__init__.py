"""Which way to split a training run over GPUs is best, how long, how much memory, what traffic.

The public names are imported on first use, so that `import shardwise` costs nothing.
"""

import importlib
import sys

TYPE_CHECKING = False
"""`typing` would be looked for in the folder that `python -m shardwise` is started in"""

if TYPE_CHECKING:
    from typing import Any

    from shardwise.answers.ask import estimate_of, plan_of, posttrain_of, table_of
    from shardwise.question import PolicyQuestion, Question, open_question_of, question_of
    from shardwise.question.studies.build import report_of
    from shardwise.run.auto.api import auto_plan
    from shardwise.run.auto.own_script import load_whole_state, parallelize, whole_state
    from shardwise.spec.arch import model_of
    from shardwise.spec.cluster import Cluster
    from shardwise.spec.gpu import Gpu
    from shardwise.spec.job import Job
    from shardwise.spec.load import cluster_of, gpu_of
    from shardwise.spec.model import Model
    from shardwise.spec.policy import Policies, Policy
    from shardwise.spec.software import Stack, stack_of
    from shardwise.work.case import Case, case_of

    __version__: str

_HOMES = {
    "Case": "work.case",
    "Cluster": "spec.cluster",
    "Gpu": "spec.gpu",
    "Job": "spec.job",
    "Model": "spec.model",
    "Policies": "spec.policy",
    "Policy": "spec.policy",
    "PolicyQuestion": "question",
    "Question": "question",
    "Stack": "spec.software",
    "auto_plan": "run.auto.api",
    "case_of": "work.case",
    "cluster_of": "spec.load",
    "estimate_of": "answers.ask",
    "gpu_of": "spec.load",
    "load_whole_state": "run.auto.own_script",
    "model_of": "spec.arch",
    "open_question_of": "question",
    "parallelize": "run.auto.own_script",
    "plan_of": "answers.ask",
    "posttrain_of": "answers.ask",
    "question_of": "question",
    "report_of": "question.studies.build",
    "stack_of": "spec.software",
    "table_of": "answers.ask",
    "whole_state": "run.auto.own_script",
}

__all__ = [
    "Case",
    "Cluster",
    "Gpu",
    "Job",
    "Model",
    "Policies",
    "Policy",
    "PolicyQuestion",
    "Question",
    "Stack",
    "__version__",
    "auto_plan",
    "case_of",
    "cluster_of",
    "estimate_of",
    "gpu_of",
    "load_whole_state",
    "model_of",
    "open_question_of",
    "parallelize",
    "plan_of",
    "posttrain_of",
    "question_of",
    "report_of",
    "stack_of",
    "table_of",
    "whole_state",
]


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("shardwise")
        except PackageNotFoundError:
            return "0+unknown"  # a source tree that is not installed
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: "Any") -> None:
    """`%load_ext shardwise`: results show themselves in a notebook."""
    importlib.import_module(f"{__name__}.show.notebook").register(shell)


def _in_a_notebook() -> None:
    """In one, `import shardwise` is enough; elsewhere nothing is imported."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        load_ipython_extension(shell)


_in_a_notebook()
