"""`catalog`: the kinds of things that can be named in a question, and how many there are of each."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise import catalog
from shardwise.answers.answer import Answer, Part, shown, table

FOLDERS = {"models": "models", "gpus": "gpus", "clusters": "fabrics", "programs": "programs", "layouts": "layouts"}
"""kind -> folder of the catalog"""
NAMED_BY = {"models": "MODEL", "gpus": "--on 8xGPU", "clusters": "--on CLUSTER:GPUS", "programs": "--stack PROGRAM",
            "layouts": "-"}  # fmt: skip
FEW = 3


class CatalogKind(Struct, frozen=True, kw_only=True):
    kind: Annotated[str, shown("kind")]
    option: Annotated[str, shown("option")]
    examples: Annotated[str, shown("examples")]
    entries: Annotated[int, shown("entries")]


class CatalogAnswer(Answer, frozen=True, kw_only=True):
    kinds: Sequence[CatalogKind]

    def parts(self) -> Iterator[Part]:
        yield table("catalog (`shardwise catalog KIND [NAME]`)", self.kinds, words=3)


ANSWERS = (CatalogAnswer,)


def catalog_answer() -> CatalogAnswer:
    kinds = []
    for kind, folder in FOLDERS.items():
        names = catalog.names(folder)
        few = ", ".join(names[:: max(len(names) // FEW, 1)][:FEW])
        kinds.append(CatalogKind(kind=kind, option=NAMED_BY[kind], examples=few, entries=len(names)))
    return CatalogAnswer(kinds=kinds)
