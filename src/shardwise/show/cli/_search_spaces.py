"""The flags of `shardwise search` that say what to look through: those that each kind of problem states are its own."""

from dataclasses import field, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import Parameter

from shardwise.cost.curve import curve_of
from shardwise.plan.search.problems import ProblemKind, SearchInput, SearchSpace, problem_kind, problem_kinds
from shardwise.question import PolicyQuestion
from shardwise.show.cli._flags import Flags, asked, leave_out
from shardwise.spec.cluster import Cluster
from shardwise.spec.parameters import parameters
from shardwise.work.case import Case, driven_network

DEFAULT = "stages"


def _flags() -> Any:
    """One dataclass of all flags; made when the verb is loaded, so that a new problem needs no line here."""
    kinds = problem_kinds()
    names = ", ".join(f"{kind.name} ({kind.summary})" for kind in kinds.values())
    made: list[Any] = [("problem", Annotated[str, Parameter(help=f"{names}.")], field(default=DEFAULT))]
    for kind in kinds.values():
        types = get_type_hints(kind.options, include_extras=True)
        for each in own_options(kind):
            plain, meaning = get_args(types[each.name])
            told = Parameter(help=f"{kind.name}: {meaning}", negative=())
            made.append((each.name, Annotated[plain, told], field(default=each.default)))
    # its module says that it is no built-in type, which cyclopts would not look into
    own = {"__module__": __name__}
    return Parameter(name="*")(make_dataclass("SpaceFlags", made, namespace=own, frozen=True, kw_only=True))


def own_options(kind: ProblemKind) -> list[Any]:
    """Its options, but for those of every question."""
    return [each for each in fields(kind.options) if each.name not in parameters()]


if TYPE_CHECKING:
    SpaceFlags = Any
else:
    SpaceFlags = _flags()


def space_of(model: str, flags: Flags, chosen: SpaceFlags) -> tuple[PolicyQuestion, ProblemKind, SearchSpace]:
    kind = problem_kind(chosen.problem)
    _check_flags(kind, chosen)
    leave_out("search", "prices steps with the mean gradient over full sequences", flags, "sync", "lengths", "packing")
    ask = asked(model, flags)
    given = SearchInput(ask.case, ask.policy, lambda cluster: _moved(ask.case, cluster), flags.dp is not None)
    values = {each.name: getattr(chosen, each.name) for each in own_options(kind)}
    values |= {
        each.name: value for each in fields(kind.options) if (value := getattr(flags, each.name, None)) is not None
    }
    own = kind.options(**values)
    return ask, kind, kind.space(given, own)


def _moved(case: Case, cluster: Cluster) -> Case:
    """The same training on other GPUs, of which nothing was measured."""
    return replace(case, cluster=cluster, curve=curve_of(cluster.gpu), network=driven_network(cluster, case.stack))


def _check_flags(chosen_kind: ProblemKind, chosen: SpaceFlags) -> None:
    """A flag of another problem is a mistake, not a wish."""
    for kind in problem_kinds().values():
        for each in own_options(kind):
            if kind != chosen_kind and getattr(chosen, each.name) != each.default:
                raise ValueError(f"{each.name.replace('_', '-')}: belongs to --problem {kind.name}, not "
                                 f"{chosen_kind.name}; leave it out")  # fmt: skip
