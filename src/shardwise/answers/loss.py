"""`calc loss`: from the scores of a model to its loss and to the gradient that training starts from."""

from collections.abc import Iterator, Sequence
from math import exp, isfinite, log
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Part, shown, table

MOST_CLASSES = 1000


class ClassScore(Struct, frozen=True, kw_only=True):
    label: Annotated[int, shown("class", "thousands")]
    logit: Annotated[float, shown("score (logit)")]
    probability: Annotated[float, shown("probability", "share")]
    truth: Annotated[int, shown("truth", "thousands")]
    """one-hot: 1 for the right class, 0 for all others"""
    gradient: Annotated[float, shown("gradient", "share")]


class LossAnswer(Answer, frozen=True, kw_only=True):
    classes: Sequence[ClassScore]
    label: int
    cross_entropy: float
    mean_squared_error: float
    gradient_sum: float

    def parts(self) -> Iterator[Part]:
        yield table("scores, probabilities by softmax, gradient of the loss", self.classes, bars=("probability",))
        right = self.classes[self.label].probability
        yield FactList("", [
            ("cross-entropy", f"-ln {right:.3g} = {self.cross_entropy:.4g}"),
            ("mean squared error", f"{self.mean_squared_error:.4g} (of probabilities against the truth)"),
            ("gradients add up to", f"{self.gradient_sum:.3g}"),
        ])  # fmt: skip


ANSWERS = (LossAnswer,)


def loss_answer(logits: Sequence[float], label: int) -> LossAnswer:
    if not 2 <= len(logits) <= MOST_CLASSES:
        raise ValueError(f"scores: {len(logits)} given; write 2 to {MOST_CLASSES:,} numbers, such as 2.0,1.0,0.1")
    if not all(map(isfinite, logits)):
        raise ValueError("scores: one is not finite; write plain numbers, such as 2.0,1.0,0.1")
    if not 0 <= label < len(logits):
        raise ValueError(f"label: {label} is out of range; write a class from 0 to {len(logits) - 1}")
    largest = max(logits)  # the same probabilities, and no overflow
    weights = [exp(each - largest) for each in logits]
    shares = [each / sum(weights) for each in weights]
    rows = [
        ClassScore(label=at, logit=logit, probability=share, truth=int(at == label), gradient=share - (at == label))
        for at, (logit, share) in enumerate(zip(logits, shares, strict=True))
    ]
    return LossAnswer(
        classes=rows, label=label, cross_entropy=log(sum(weights)) - (logits[label] - largest),
        mean_squared_error=sum(row.gradient**2 for row in rows) / len(rows),
        gradient_sum=sum(row.gradient for row in rows),
    )  # fmt: skip
