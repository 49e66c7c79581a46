"""The fields of a model's configuration, as Hugging Face writes them."""

from collections.abc import Mapping
from typing import ClassVar, Self

from shardwise.fields import Fields

MOST_LAYERS = 4096
MOST_WIDTH = 10**7


class ConfigFields(Fields):
    """Numbers are numbers here, never text; a configuration may hold fields that nobody reads."""

    numbers_as_text: ClassVar[bool] = False
    most_whole: ClassVar[int] = MOST_WIDTH

    @classmethod
    def of(cls, config: Mapping[str, object], model: str) -> Self:
        return cls(config, f"model {model}")

    def layers(self, *names: str) -> int:
        return self.whole(*(names or ("num_hidden_layers",)), most=MOST_LAYERS)

    def divided(self, total_name: str, total: int, parts_name: str, parts: int) -> int:
        if total % parts:
            raise ValueError(f"{self.at(parts_name)} is {parts}; write a divisor of {total_name} {total}")
        return total // parts
