"""Rewards by rule: a number from 0 to 1 for each answer, from its tokens alone, the same on every rank."""

from collections.abc import Callable

from torch import Tensor

DIGITS, ECHO, SHORT = "digits", "echo", "short"


def _digits(_: Tensor, answers: Tensor, there: Tensor) -> Tensor:
    """Share of tokens that are bytes of decimal digits."""
    return _share((answers >= ord("0")) & (answers <= ord("9")), there)


def _echo(prompts: Tensor, answers: Tensor, there: Tensor) -> Tensor:
    """Share of tokens that repeat the prompt's last one."""
    return _share(answers == prompts[:, -1:], there)


def _short(_: Tensor, __: Tensor, there: Tensor) -> Tensor:
    """Share of the longest answer that is not used."""
    return 1.0 - there.double().mean(1)


def _share(right: Tensor, there: Tensor) -> Tensor:
    return (right & there).sum(1).double() / there.sum(1)


REWARDS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {DIGITS: _digits, ECHO: _echo, SHORT: _short}
"""of prompts [answers, tokens], answers [answers, tokens] and which of their tokens are there"""
