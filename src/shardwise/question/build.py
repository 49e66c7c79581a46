"""Makes a question of a model, a cluster and what is stated of the rest: for the command line and for Python alike."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from msgspec.structs import replace as with_fields

from shardwise.cost.calibrate.profile import Profile, profile_of
from shardwise.plan.choice import RISK
from shardwise.plan.exhaustive import HEADROOM
from shardwise.question.job import host_bytes_of, lengths_choice, software_of, whole_job
from shardwise.question.policy import bounds_of, limits_of, stated_policy
from shardwise.question.question import ASSUMED, RECOMMENDED, SMALLEST, STATED, PolicyQuestion, Progress, Question
from shardwise.registry import closest
from shardwise.spec.arch import model_of
from shardwise.spec.cards import named_with
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import precision_of, usual_precision
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.parameter import OVERLAP, POLICY
from shardwise.spec.parameters import (
    CaseOptions,
    Options,
    SharedOptions,
    check_options,
    flag_of,
    parameters,
    stated,
)
from shardwise.spec.policy import Policy
from shardwise.spec.software import is_former
from shardwise.step.estimate.synced import SyncChoice, choice_of
from shardwise.usual_places import PLACES

LOADED = "bf16"
"""frozen weights under adapters, whatever the program trains whole models in"""


def question_of(
    model: str | Model | Mapping[str, Any], on: str | Cluster | Mapping[str, Any],
    options: SharedOptions | None = None, *, recommend: bool = True,
    progress: Progress | None = None, **stated_options: Any,
) -> PolicyQuestion:  # fmt: skip
    """The question of one policy, as `shardwise estimate` asks it: the stated one, or where options state nothing of it
    the one that `shardwise plan` recommends. Options are the flags of the command line:
    `question_of("llama-3-8b", on="8xh100", tp=2, seq=4096)`. Without `recommend`, as for a run that was, what nobody
    stated is plain data parallelism."""
    options = options or options_of(stated_options)
    open_question = open_question_of(model, on, options)
    if set(stated(options, POLICY, OVERLAP)) - {"sync"}:
        if options.fix:
            bound = options.fix[0]
            raise ValueError(f"fix: {bound!r} bounds a search, but the policy is stated; leave one of them out")
        return _stated(open_question, options)
    if not recommend:
        note = (
            "no policy stated: data parallelism over all GPUs with ZeRO 1 is assumed; --tp, --pp, --zero, ... state it"
        )
        return replace(_stated(replace(open_question, notes=(note, *open_question.notes)), options), origin=ASSUMED)
    choice = _strategy(options)
    found = _recommended(replace(open_question, sync=choice), progress)
    return replace(found, policy=with_fields(found.policy, sync=choice.text)) if choice else found


def open_question_of(
    model: str | Model | Mapping[str, Any], on: str | Cluster | Mapping[str, Any],
    options: CaseOptions | None = None, *, gpus: int | None = None,
    **stated_options: Any,
) -> Question:  # fmt: skip
    """The question of all policies, as `shardwise plan` asks it: what options state of a policy bounds the search.

    `gpus`: those that a batch nobody stated is meant for; None: the cluster's.
    """
    options = options or options_of(stated_options)
    check_options(options)
    space = options if isinstance(options, SharedOptions) else SharedOptions()
    shape = model if isinstance(model, Model) else model_of(model)
    cluster = _cluster(on, options.nic)
    stack = software_of(options, shape, cluster.gpu)
    named = getattr(options, "precision", None)
    precision = stack.precision(named or usual_precision(shape))
    job, notes = whole_job(shape, options, precision, gpus or cluster.gpus)
    if options.stack and is_former(options.stack) and not stack.name.endswith(f"@{options.stack}"):
        notes.append(f"stack: {options.stack!r} is now {stack.name!r}")
    tuning = job.tuning
    adapts = tuning is not None and tuning.adapters is not None
    quantised = tuning is not None and bool(tuning.base)
    if adapts:
        stack = stack.changed(
            limits=tuple(dict.fromkeys((*stack.abilities.limits, *stack.abilities.limits_with_adapters)))
        )
    if adapts and precision.param_bytes > 2 and (named is None or (quantised and named == LOADED)):
        job = with_fields(job, precision=precision_of(LOADED))
        if named is None:
            notes.append(f"--precision not given: frozen weights loaded in 16 bits ({LOADED})")
    profile, said = _profile(options, cluster)
    notes += said
    return Question(
        model=shape, cluster=cluster, job=job, stack=stack, profile=profile,
        headroom=HEADROOM if space.headroom is None else space.headroom,
        risk=RISK if space.risk is None else space.risk,
        only=bounds_of(space), limits=limits_of(space), host_bytes=host_bytes_of(options.host_memory),
        lengths=lengths_choice(shape, options.lengths, options.packing), notes=tuple(notes),
    )  # fmt: skip


def with_policy(question: Question, policy: Policy, origin: str, *notes: str) -> PolicyQuestion:
    values = {each.name: getattr(question, each.name) for each in fields(Question)}
    return PolicyQuestion(**values | {"notes": (*question.notes, *notes)}, policy=policy, origin=origin)


def options_of(given: Mapping[str, Any]) -> Options:
    """Options by name, with numbers where the command line has text: `{"tp": 8, "seq": 4096}`."""
    kinds = _kinds()
    for name in given:
        if name not in kinds:
            raise ValueError(f"{name}: a question has no such option; {closest(name, list(kinds))}")
    return Options(**{name: _converted(name, kinds[name], value) for name, value in given.items()})


@cache
def _kinds() -> dict[str, tuple[type, ...]]:
    hints = get_type_hints(Options)
    kinds = {name: hints[name] for name in parameters()}
    return {name: get_args(kind) if isinstance(kind, UnionType) else (kind,) for name, kind in kinds.items()}


def _converted(name: str, kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None or bool in kinds:
        if value is None or isinstance(value, bool):
            return value
        raise ValueError(f"{flag_of(name)}: {value!r} is not a switch; write True or False")
    if str in kinds and not isinstance(value, str):
        return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if Path in kinds:
        return Path(value)
    if list[str] in kinds:
        return [value] if isinstance(value, str) else list(value)
    number = float if float in kinds else int if int in kinds else None
    if number is not None and (isinstance(value, bool) or not isinstance(value, int | float) or number(value) != value):
        raise ValueError(f"{flag_of(name)}: {value!r} is not {'a number' if number is float else 'a whole number'}")
    return value if number is None else number(value)


def _profile(options: CaseOptions, cluster: Cluster) -> tuple[Profile | None, list[str]]:
    if options.profile is None:
        return (None, []) if options.no_profile else _usual_profile(cluster)
    if options.no_profile:
        raise ValueError("no-profile: a profile is given; leave --profile or --no-profile out")
    return profile_of(options.profile), []


def _usual_profile(cluster: Cluster) -> tuple[Profile | None, list[str]]:
    """The first that was measured on such a GPU."""
    for path in filter(Path.is_file, PLACES.get()):
        try:
            profile = profile_of(path)
        except ValueError as error:
            raise ValueError(f"{error}; correct {path}, or write --no-profile") from None
        if profile.fits(cluster.gpu):
            return profile, [f"profile: {path} is taken; --no-profile leaves it out"]
    return None, []


def _cluster(on: str | Cluster | Mapping[str, Any], nic: str | None) -> Cluster:
    if isinstance(on, Mapping):
        on = cluster_of(on)
    if isinstance(on, str):
        return cluster_of(named_with(on, nic))
    if nic is not None:
        raise ValueError(f"nic: {nic!r}, but the cluster is described already; state its NICs there")
    return on


def _stated(question: Question, options: SharedOptions) -> PolicyQuestion:
    case = question.case
    policy, notes = stated_policy(options, case.model, question.cluster, question.job, case.stack)
    choice = _strategy(options)
    policy = with_fields(policy, sync=choice.text if choice else "")
    return with_policy(replace(question, only=(), limits=None), policy, STATED, *notes)


def _strategy(options: SharedOptions) -> SyncChoice | None:
    text = getattr(options, "sync", None)
    return choice_of(text.strip()) if text else None


def _recommended(question: Question, progress: Progress | None) -> PolicyQuestion:
    from shardwise.report.terminal import policy_code  # a stated policy needs no report

    ranked = question.ranked(progress=progress)
    candidate, origin = ranked.recommended or ranked.smallest, RECOMMENDED if ranked.recommended else SMALLEST
    if candidate is None:
        return _stated(question, Options())
    code = policy_code(candidate.policy)
    why = "the recommended one is" if origin == RECOMMENDED else "none fits: the one that needs the least memory is"
    note = f"no policy stated, {why} {code}; state one with --tp, --pp, --zero, ...; `shardwise plan` compares them"
    return with_policy(replace(question, notes=(note, *question.notes)), candidate.policy, origin)
