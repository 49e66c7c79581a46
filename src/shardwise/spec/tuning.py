"""What of a model is trained: all of it, some of its parts, or adapters beside matrices that stay as they are."""

from msgspec import Struct

from shardwise.fields import short
from shardwise.registry import closest

NF4_BLOCK = 64
"""weights that share one scale (QLoRA, arXiv:2305.14314, section 3)"""
SCALES_BLOCK = 256
"""scales that share one of their own where they are quantised too (the same section)"""

BASES: dict[str, float] = {
    "nf4": 0.5 + (1.0 + 4.0 / SCALES_BLOCK) / NF4_BLOCK,
    "nf4-single": 0.5 + 4.0 / NF4_BLOCK,
}
"""bytes of a quantised weight: four bits, and its share of a scale in one byte (that has its share of one in fp32),
or of a scale in fp32"""

GROUPS = ("attention", "mlp", "all")
METHODS = ("full", "lora", "dora", "qlora")
MOST_RANK = 65_536
MOST_DIGITS = 9
TUNE_FORM = "write full, lora, dora or qlora, such as lora,rank=16,targets=attention"
FREEZE_FORM = "write embeddings, first=8, vision, or several of them with commas"


class Adapters(Struct, frozen=True, kw_only=True):
    """Beside a matrix W of n x k: A of rank x k and B of n x rank, whose product is added to it (arXiv:2106.09685)."""

    rank: int = 16
    targets: tuple[str, ...] = ("all",)
    """attention, mlp, all, or names of modules such as q_proj"""
    magnitudes: bool = False
    """the rows of W + BA keep a trained length each (DoRA, arXiv:2402.09353)"""

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= MOST_RANK:
            raise ValueError(f"tune: rank={self.rank} is out of range; write a whole number from 1 to {MOST_RANK:,}")
        if not self.targets:
            raise ValueError(f"tune: targets names nothing; write {', '.join(GROUPS)} or modules such as q_proj,v_proj")


class Tuned(Struct, frozen=True, kw_only=True):
    """How one kind of layer is trained, where not all of it is."""

    frozen: bool
    """its own weights stay as they are"""
    adapters: Adapters | None = None
    backward: bool = True
    """something in it or before it is trained"""
    gradient_in: bool = True
    """something before it is trained"""


class Tuning(Struct, frozen=True, kw_only=True):
    adapters: Adapters | None = None
    """trained in place of the model's own weights"""
    base: str = ""
    """how matrices with frozen weights are kept, one of BASES; empty: as the precision keeps weights"""
    embeddings: bool = False
    """the tables that tokens are looked up in are frozen"""
    first: int = 0
    """so many layers of the language model are frozen, from the first on"""
    vision: bool = False
    """towers that see images or hear sounds are frozen"""

    @property
    def embedding_frozen(self) -> bool:
        return self.embeddings or self.adapters is not None

    @property
    def head_frozen(self) -> bool:
        """All behind the last layer, but for a table that is the embedding's."""
        return self.adapters is not None

    @property
    def tune_text(self) -> str:
        """As `--tune` has it; empty where all is trained that is not frozen."""
        found = self.adapters
        if found is None:
            return ""
        usual = "qlora" if self.base == "nf4" and not found.magnitudes else "dora" if found.magnitudes else "lora"
        base = f",base={self.base}" if self.base and usual != "qlora" else ""
        return f"{usual},rank={found.rank},targets={','.join(found.targets)}{base}"

    @property
    def freeze_text(self) -> str:
        """As `--freeze` has it."""
        words = [name for name in ("embeddings", "vision") if getattr(self, name)]
        return ",".join([*words, *([f"first={self.first}"] if self.first else [])])


def tuning_of(tune: str | None, freeze: str | None) -> Tuning | None:
    """None where everything is trained."""
    adapters, base = _adapters_of(tune) if tune is not None else (None, "")
    words, first = _frozen_of(freeze) if freeze is not None else (set(), 0)
    if adapters is None and not words and not first:
        return None
    return Tuning(adapters=adapters, base=base, embeddings="embeddings" in words, first=first, vision="vision" in words)


def _adapters_of(text: str) -> tuple[Adapters | None, str]:
    method, *words = (word.strip() for word in text.split(","))
    if method not in METHODS:
        raise ValueError(f"tune: {method!r} is unknown; {closest(method, list(METHODS))}; {TUNE_FORM}")
    settings = _settings(words)
    if method == "full":
        if settings:
            raise ValueError(f"tune: full has no {next(iter(settings))}; {TUNE_FORM}")
        return None, ""
    base = settings.get("base", ["nf4" if method == "qlora" else ""])[0]
    if base and base not in BASES:
        raise ValueError(f"tune: base={base!r} is unknown; write {' or '.join(BASES)}, or leave it out")
    rank = settings.get("rank", ["16"])[0]
    if not _whole(rank):
        raise ValueError(f"tune: rank={rank!r} is not a whole number; write for example rank=16")
    found = Adapters(
        rank=int(rank), targets=tuple(dict.fromkeys(settings.get("targets", ["all"]))), magnitudes=method == "dora"
    )
    return found, base


def _settings(words: list[str]) -> dict[str, list[str]]:
    """'rank=8', 'targets=q_proj', 'v_proj': a word without a sign is one more target."""
    found: dict[str, list[str]] = {}
    key = ""
    for word in words:
        name, sign, value = word.partition("=")
        if sign:
            key = name.strip()
            if key not in ("rank", "targets", "base"):
                raise ValueError(f"tune: {key!r} is not a setting; write rank=, targets= or base=")
            if key in found:
                raise ValueError(f"tune: {key} is {short(found[key][0])} and {short(value)}; write it once")
        elif key != "targets":
            raise ValueError(f"tune: cannot read {word!r}; {TUNE_FORM}")
        else:
            value = word
        if not value.strip():
            raise ValueError(f"tune: {key}= has an empty value; {TUNE_FORM}")
        found.setdefault(key, []).append(value.strip())
    return found


def _whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def _frozen_of(text: str) -> tuple[set[str], int]:
    """Words, and the number of layers."""
    found: set[str] = set()
    first = 0
    for word in (word.strip() for word in text.split(",")):
        name, sign, value = word.partition("=")
        if name == "first" and sign:
            if not _whole(value) or int(value) < 1:
                raise ValueError(f"freeze: first={value!r} is not a number of layers; write for example first=8")
            if first:
                raise ValueError(f"freeze: first is {first} and {value}; write it once")
            first = int(value)
        elif word in ("embeddings", "vision"):
            found.add(word)
        else:
            raise ValueError(f"freeze: {word!r} is unknown; {FREEZE_FORM}")
    return found, first
