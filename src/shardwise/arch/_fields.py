"""Reads fields of a model configuration with the checks every family needs.

A configuration is untrusted text: every field is checked for type and range when it is read, and an error
names the model, the field, the value and what to write. `null` counts as absent, as in Hugging Face files.
"""

from collections.abc import Mapping, Sequence

MOST_LAYERS = 4096
MOST_WIDTH = 10**7


class Fields:
    def __init__(self, config: Mapping[str, object], model: str, path: str = "") -> None:
        self._config = config
        self._model = model
        self._path = path

    def has(self, name: str) -> bool:
        return self._config.get(name) is not None

    def whole(self, *names: str, default: int | None = None, least: int = 1, most: int = MOST_WIDTH) -> int:
        """A whole number under the first of these names that is there; without a default it must be there."""
        name = next((n for n in names if self.has(n)), None)
        if name is None:
            if default is None:
                raise self._error(names[0], "is missing", f"a whole number from {least} to {most}")
            return default
        value = self._config[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._error(name, f"is {_short(value)}", f"a whole number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        if not self.has(name):
            return default
        value = self._config[name]
        if not isinstance(value, bool):
            raise self._error(name, f"is {_short(value)}", "true or false")
        return value

    def word(self, name: str, default: str) -> str:
        value = self._config[name] if self.has(name) else default
        if not isinstance(value, str):
            raise self._error(name, f"is {_short(value)}", "a text")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._config[name] if self.has(name) else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e18:
            raise self._error(name, f"is {_short(value)}", "a number from 0 to 1e18")
        return float(value)

    def section(self, name: str) -> "Fields":
        """A nested object; an absent one is empty: its fields take their defaults or are missing."""
        value = self._config[name] if self.has(name) else {}
        if not isinstance(value, Mapping):
            raise self._error(name, f"is {_short(value)}", "an object with fields")
        return Fields(value, self._model, f"{self._path}{name}.")

    def words(self, name: str, length: int, choices: Sequence[str], default: Sequence[str]) -> Sequence[str]:
        """One word per layer."""
        if not self.has(name):
            return default
        value = self._config[name]
        if not isinstance(value, list) or len(value) != length or any(v not in choices for v in value):
            raise self._error(name, f"is {_short(value)}", f"a list of {length} words out of {', '.join(choices)}")
        return value

    def listed(self, name: str, choices: Sequence[str], most: int) -> Sequence[str]:
        """A list of words of any length up to `most`."""
        value = self._config.get(name)
        if not isinstance(value, list) or not 1 <= len(value) <= most or any(v not in choices for v in value):
            raise self._error(name, f"is {_short(value)}", f"a list of words out of {', '.join(choices)}")
        return value

    def wholes(self, name: str, *, least: int, most: int, default: Sequence[int] | None = None) -> Sequence[int]:
        """A list of whole numbers."""
        if not self.has(name):
            if default is None:
                raise self._error(name, "is missing", f"a list of whole numbers from {least} to {most}")
            return default
        value = self._config[name]
        wanted = f"a list of at most {MOST_LAYERS} whole numbers from {least} to {most}"
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise self._error(name, f"is {_short(value)}", wanted)
        if any(isinstance(v, bool) or not isinstance(v, int) or not least <= v <= most for v in value):
            raise self._error(name, f"is {_short(value)}", wanted)
        return value

    def layers(self, *names: str) -> int:
        return self.whole(*(names or ("num_hidden_layers",)), most=MOST_LAYERS)

    def divided(self, total_name: str, total: int, parts_name: str, parts: int) -> int:
        if total % parts:
            raise self._error(parts_name, f"is {parts}", f"a divisor of {total_name} {total}")
        return total // parts

    def refuse(self, name: str, wanted: str) -> ValueError:
        """An error about a field that is there but does not suit the others."""
        return self._error(name, f"is {_short(self._config.get(name))}", wanted)

    def _error(self, name: str, found: str, wanted: str) -> ValueError:
        return ValueError(f"model {self._model}: {self._path}{name} {found}; write {wanted}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
