"""A configuration of Hugging Face transformers as a training program: their class without weights, usual step."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shardwise.run.auto.narrow import smaller, smaller_numbers
from shardwise.run.auto.program import UserProgram, program_of
from shardwise.run.auto.source import ProgramSource
from shardwise.run.auto.weightless import without_weights

LIBRARY = "transformers"
RATE = 3e-4


def config_source(config: Mapping[str, Any], name: str, samples: int, tokens: int) -> ProgramSource:
    """Code that a configuration names (`auto_map`) is never run."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ValueError(f"model {name}: it has no model_type; write a config.json of Hugging Face transformers")
    try:
        library = importlib.import_module(LIBRARY)
    except ImportError:
        raise ValueError(
            f"model {name}: {LIBRARY}, which builds it, is not installed; write pip install {LIBRARY}, or a script "
            "with build, batch and step"
        ) from None
    fields = {
        key: value for key, value in config.items() if not key.startswith("_") and key not in ("auto_map", "model_type")
    }
    if kind not in library.CONFIG_MAPPING:
        raise ValueError(f"model {name}: {LIBRARY} {library.__version__} knows no model_type {kind!r}; write another")

    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        own = library.CONFIG_MAPPING[kind].from_dict({**fields, "use_cache": False})
        model = library.AutoModelForCausalLM.from_config(own, trust_remote_code=False)
        return model, torch.optim.AdamW(model.parameters(), lr=RATE)

    words = _words(fields)

    def batch() -> Tensor:
        return torch.randint(0, words, (samples, tokens))

    def make(steps: int, dtype: str) -> UserProgram:
        return program_of(build, batch, _step, steps, dtype)

    def outline() -> UserProgram:
        with without_weights():
            torch.manual_seed(0)
            built = build()
        return UserProgram(built, _step, [batch()])

    @contextmanager
    def narrow(divisor: int) -> Iterator[ProgramSource]:
        own = {**smaller_numbers(fields, divisor), "model_type": kind}
        yield config_source(own, name, samples, smaller(tokens, divisor))

    return ProgramSource(make, outline, narrow)


@contextmanager
def telling(name: str) -> Iterator[None]:
    """What transformers prints goes to stderr, and its refusal of a configuration is told in one line."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (ValueError, KeyboardInterrupt):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise ValueError(f"model {name}: {type(error).__name__}: {lines[0][:200]}") from error


def _words(fields: Mapping[str, Any]) -> int:
    found = fields.get("vocab_size")
    return found if isinstance(found, int) and found > 1 else 2


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    logits = model(input_ids=tokens).logits
    F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
