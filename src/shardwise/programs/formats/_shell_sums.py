"""What a shell works out of plain text: whole numbers, ends cut off by a pattern."""

import re
from fnmatch import fnmatchcase


def cut_off(value: str, pattern: str, *, front: bool, long: bool) -> str:
    places = range(len(value) + 1)
    fitting = [at for at in places if fnmatchcase(value[:at] if front else value[len(value) - at :], pattern)]
    if not fitting:
        return value
    at = max(fitting) if long else min(fitting)
    return value[at:] if front else value[: len(value) - at]


def whole_result(text: str) -> int | None:
    """The value of a small sum, by precedence; None where there is none."""
    tokens = re.findall(r"\d+|[()+*/%-]", text)
    place = 0

    def product() -> int:
        nonlocal place
        left = single()
        while place < len(tokens) and tokens[place] in "*/%":
            sign, place = tokens[place], place + 1
            right = single()
            left = left * right if sign == "*" else left // right if sign == "/" else left % right
        return left

    def total() -> int:
        nonlocal place
        left = product()
        while place < len(tokens) and tokens[place] in "+-":
            sign, place = tokens[place], place + 1
            left = left + product() if sign == "+" else left - product()
        return left

    def single() -> int:
        nonlocal place
        token, place = tokens[place], place + 1
        if token == "(":
            inside = total()
            place += 1
            return inside
        return -single() if token == "-" else int(token)

    try:
        found = total()
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return found if place == len(tokens) and abs(found) < 10**15 else None
