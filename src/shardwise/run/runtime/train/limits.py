"""Values that are out of range are refused with the field, the value and what to write."""

from collections.abc import Iterable, Sequence


def require(checks: Iterable[tuple[str, object, bool, str]]) -> None:
    """(field, value, whether it is right, what to write) of each."""
    for field, value, right, cure in checks:
        if not right:
            raise ValueError(f"{field}: {value} is out of range; write {cure}")


def one_of(field: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{field}: {value!r} is unknown; write {' or '.join(known)}")
