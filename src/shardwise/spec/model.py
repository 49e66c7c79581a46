"""A model: the shapes of its weights and nothing about dtype, batch or devices.

Layers come in kinds (dense or expert; full, windowed or compressed attention, Mamba-2, gated delta rule); `pattern`
says which kind each layer is. A model has few kinds and many layers, so everything downstream computes per kind and
counts.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from shardwise.spec.tuning import Tuned, Tuning


class CompressedAttention(Struct, frozen=True, kw_only=True):
    """What attention of DeepSeek-V4 has besides (arXiv:2606.19348, section 2.3). One vector of a token is key and value
    to all heads. A query meets those of its window, and vectors pooled from `ratio` tokens each: every one, or the
    `top_k` that an indexer with heads of its own ranks first. The output product has two steps, the first by groups of
    heads."""

    ratio: int
    """tokens a pooled vector stands for; 0: the window alone"""
    out_groups: int
    out_rank: int
    """channels the first step leaves of a group"""
    overlapping: bool = False
    """a pooled vector also sees the `ratio` tokens before its own, through channels of their own"""
    index_heads: int = 0
    index_dim: int = 0
    top_k: int = 0
    """pooled vectors a query meets at most; 0: all"""

    def __post_init__(self) -> None:
        if self.ratio < 0 or min(self.out_groups, self.out_rank) < 1:
            raise ValueError(f"compressed: ratio must not be negative, groups and rank be positive, not {self}")
        if (self.top_k > 0) != (min(self.index_heads, self.index_dim) > 0) or (self.top_k and not self.ratio):
            raise ValueError(f"compressed: top_k, index_heads, index_dim and ratio come together, not {self}")

    def pooled_width(self, width: int) -> int:
        """channels a token's value, and as many its weight, has before `width` of them are pooled"""
        return (2 if self.overlapping else 1) * width


class Attention(Struct, frozen=True, kw_only=True):
    """Multi-head, grouped-query (kv_heads < heads), latent (MLA: kv_lora > 0) or compressed attention."""

    heads: int
    kv_heads: int
    head_dim: int
    """width of a query/key head that enters the score product; for MLA: nope + rope"""
    v_head_dim: int = 0
    """width of a value head; 0 means head_dim"""
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0
    """MLA: the part of head_dim that carries the position and is shared by all heads on the key side"""
    bias_qkv: bool = False
    bias_out: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    """a norm on queries and keys: over each head's width, or over all heads at once"""
    window: int = 0
    """keys a query may see; 0 means the whole (causal) past"""
    causal: bool = True
    sinks: bool = False
    """one learned attention sink per head (gpt-oss)"""
    gated: bool = False
    """the query product also makes a gate that the output is multiplied with before the output product (Qwen3-Next)"""
    compressed: CompressedAttention | None = None
    values_are_keys: bool = False
    """no matrix of its own makes values (Gemma 4)"""
    shares_keys: bool = False
    """keys and values are those of an earlier layer (Gemma 3n): it has no matrices that make them"""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.kv_heads < 1 or self.head_dim < 1:
            raise ValueError(
                f"attention: heads {self.heads}, kv_heads {self.kv_heads}, head_dim {self.head_dim} must be positive"
            )
        if self.heads % self.kv_heads:
            raise ValueError(f"attention: heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.compressed is not None and self.heads % self.compressed.out_groups:
            raise ValueError(
                f"attention: heads {self.heads} must be a multiple of the output's {self.compressed.out_groups} groups"
            )

    @property
    def value_dim(self) -> int:
        return self.v_head_dim or self.head_dim

    @property
    def latent(self) -> bool:
        return self.kv_lora > 0


class Mamba(Struct, frozen=True, kw_only=True):
    """A Mamba-2 mixer (arXiv:2405.21060): one product makes gate, input, B, C and time steps; a short convolution and a
    scan over chunks of the sequence follow, a gated norm, and the output product."""

    heads: int
    head_dim: int
    state: int
    """numbers each channel of a head remembers"""
    groups: int
    """sets of B and C; the heads of a group share one"""
    conv: int
    """positions the depthwise convolution sees"""
    chunk: int
    """positions the scan handles as one block of products"""
    bias: bool = False
    """on the input and output product"""
    conv_bias: bool = True

    def __post_init__(self) -> None:
        if min(self.heads, self.head_dim, self.state, self.groups, self.conv, self.chunk) < 1:
            raise ValueError(f"mamba: every size must be positive, not {self}")
        if self.heads % self.groups:
            raise ValueError(f"mamba: heads {self.heads} must be a multiple of groups {self.groups}")

    @property
    def inner(self) -> int:
        """channels of the scan"""
        return self.heads * self.head_dim

    @property
    def mixed(self) -> int:
        """channels of the convolution: input, B and C"""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """outputs of the input product"""
        return self.inner + self.mixed + self.heads


class Delta(Struct, frozen=True, kw_only=True):
    """A mixer of the gated delta rule (arXiv:2412.06464): one product makes queries, keys, values, an output gate, and
    a decay and a step for each value head; a short convolution, the recurrence in chunks, a gated norm over each head,
    and the output product follow. Each key head serves several value heads."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int = 4
    """positions the depthwise convolution sees"""

    def __post_init__(self) -> None:
        if min(self.key_heads, self.value_heads, self.key_dim, self.value_dim, self.conv) < 1:
            raise ValueError(f"delta: every size must be positive, not {self}")
        if self.value_heads % self.key_heads:
            raise ValueError(f"delta: value_heads {self.value_heads} must be a multiple of key_heads {self.key_heads}")

    @property
    def inner(self) -> int:
        """channels of values, gate and output"""
        return self.value_heads * self.value_dim

    @property
    def keys(self) -> int:
        """channels of keys, and as many of queries, before each head is repeated for its value heads"""
        return self.key_heads * self.key_dim

    @property
    def mixed(self) -> int:
        """channels of the convolution: queries, keys and values"""
        return 2 * self.keys + self.inner

    @property
    def projected(self) -> int:
        """outputs of the input product"""
        return self.mixed + self.inner + 2 * self.value_heads


class FeedForward(Struct, frozen=True, kw_only=True):
    width: int
    glu: bool
    """two input matrices (gate and up) instead of one"""
    bias: bool = False


class Experts(Struct, frozen=True, kw_only=True):
    count: int
    top_k: int
    width: int
    glu: bool = True
    shared_width: int = 0
    """total width of the experts every token goes through"""
    shared_gate: bool = False
    bias: bool = False
    clamped: bool = False
    """what enters the gated activation is clamped (gpt-oss)"""
    router_bias: bool = False
    latent: int = 0
    """the routed experts read and write vectors of this width, projected from and to the model's; 0: the model's"""

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.count:
            raise ValueError(f"experts: top_k {self.top_k} must lie between 1 and count {self.count}")


class Matrix(Struct, frozen=True, kw_only=True):
    """A matrix of a layer beside those of attention, scans, feed-forward and experts."""

    name: str
    outputs: int
    inputs: int
    bias: bool = False
    split: Literal["none", "column", "row"] = "none"
    product: bool = True
    """every token's vector is multiplied with it; otherwise numbers are looked up in it or it is applied by element"""

    def __post_init__(self) -> None:
        if min(self.outputs, self.inputs) < 1:
            raise ValueError(f"matrix {self.name}: {self.outputs} x {self.inputs}; both must be positive")


class Layer(Struct, frozen=True, kw_only=True):
    """One kind of layer. Every kind has attention, another mixer or none, and a dense feed-forward or experts; a layer
    of a hybrid model has just one of them."""

    attention: Attention | None = None
    mamba: Mamba | None = None
    delta: Delta | None = None
    feed_forward: FeedForward | None = None
    experts: Experts | None = None
    norms: int = 2
    """norms of model width in the layer (Gemma-2 and 3 have 4, a layer of a hybrid model 1)"""
    mixer: tuple[Matrix, ...] = ()
    """a mixer that is known by its matrices alone: what it does between them is not priced"""
    further: tuple[Matrix, ...] = ()
    """what else a token meets in the layer: routers of several steps, projections into it and out of it"""
    cross: Attention | None = None
    """a second attention, whose keys and values come from what an encoder made"""
    cross_width: int = 0
    """channels of what the encoder made; 0: as the layer's"""
    cross_tokens: int = 0
    """positions the encoder made for each sequence; 0: as many as the job's sequence has"""
    width: int = 0
    """channels of the layer's residual stream where they are not the model's (a vision tower); 0: the model's"""
    tokens: int = 0
    """positions the layer sees for each sequence where they are not the job's (patches of an image); 0: the job's"""
    tuned: Tuned | None = None
    """how it is trained, where not all of it is"""

    @property
    def blocks(self) -> int:
        """what adds to the residual stream: two in a transformer's layer, one in a hybrid model's"""
        mixers = sum(mixer is not None for mixer in (self.attention, self.mamba, self.delta, self.cross))
        return mixers + bool(self.mixer) + (self.feed_forward is not None or self.experts is not None)


class PublishedTraining(Struct, frozen=True, kw_only=True):
    """Settings under which a published model was trained."""

    batch_tokens: float
    learning_rate: float
    tokens: float


class Model(Struct, frozen=True, kw_only=True):
    name: str
    family: str
    hidden: int
    vocab: int
    """rows of the embedding; for inputs of features or patches the number of outputs"""
    kinds: tuple[Layer, ...]
    pattern: tuple[int, ...]
    """kind of each layer, first to last"""
    norm: Literal["rms", "layer", "none"] = "rms"
    norm_bias: bool = False
    tied: bool = False
    positions: int = 0
    """rows of a learned position table; 0 for rotary, ALiBi or none"""
    context: int = 0
    """tokens of the longest sequence that its file states; 0: none stated"""
    rotary: bool = True
    rope_theta: float = 10_000.0
    """base of the rotary angles"""
    rotation_scaled: bool = False
    """the rotation is multiplied by a factor (YaRN)"""
    norm_epsilon: float = 1e-5
    """added under the root of a norm"""
    dropout: bool = False
    """trained with dropout, so masks are kept (GPT-2/3, BERT)"""
    token_types: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    pooler: bool = False
    """an extra hidden x hidden layer on the first token (BERT)"""
    head_transform: bool = False
    """a hidden x hidden layer and a norm before the vocabulary (BERT's masked-LM head)"""
    head_bias: bool = False
    embedding_width: int = 0
    """width of the embedding when it is not hidden (0: hidden)"""
    streams: int = 1
    """residual streams: a block reads a mix of them and adds to all (hyper-connections, arXiv:2512.24880)"""
    mtp_layers: int = 0
    """extra layers that predict further tokens (DeepSeek-V3), each with its own 2h x h projection"""
    mtp_pattern: tuple[int, ...] = ()
    """kinds of layer in one extra prediction layer; empty: one as the last"""
    mtp_repeated: bool = False
    """the extra prediction layers are one, passed `mtp_layers` times"""
    inputs: Literal["tokens", "features", "patches"] = "tokens"
    """words that are looked up; an example's numbers; pieces of a picture, each a token after one product"""
    input_width: int = 0
    """features of an example, or numbers of a patch"""
    input_bias: bool = False
    """a bias on the product that reads features or patches"""
    class_tokens: int = 0
    """learned tokens that stand before the patches of every sample"""
    sample_tokens: int = 0
    """tokens of every sample where its inputs and positions fix them; 0: the job says"""
    head_once: bool = False
    """head and loss see one row of a sample instead of every token: a classifier"""
    published_params: float = 0.0
    published_training: "PublishedTraining | None" = None
    source: str = ""
    notes: tuple[str, ...] = ()
    """what its reader took for granted, for the user to check"""
    tuning: Tuning | None = None
    """what of it is trained, in a case whose job does not train all of it"""

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.vocab < 1:
            raise ValueError(f"model {self.name}: hidden {self.hidden} and vocab {self.vocab} must be positive")
        if not 1 <= self.streams <= 64:
            raise ValueError(f"model {self.name}: {self.streams} residual streams; write 1 to 64")
        if self.inputs != "features" and not self.pattern:
            raise ValueError(f"model {self.name}: has no layers")
        if any(not 0 <= kind < len(self.kinds) for kind in self.pattern + self.mtp_pattern):
            raise ValueError(f"model {self.name}: pattern names a layer kind that is not there")
        if len(self.pattern) > 4096 or self.hidden > 10**6 or self.vocab > 10**8:
            raise ValueError(
                f"model {self.name}: {len(self.pattern)} layers, hidden {self.hidden}, vocab {self.vocab}: absurd; "
                "at most 4,096 layers, hidden 1,000,000, vocab 100,000,000"
            )
        if self.inputs == "patches" and not self._has_patches:
            raise ValueError(
                f"model {self.name}: patches of {self.input_width} numbers, {self.sample_tokens} tokens a sample, "
                f"{self.class_tokens} of them learned; write 1 number or more, at most 64 learned ones and one other"
            )

    @property
    def _has_patches(self) -> bool:
        fixed = self.sample_tokens
        return self.input_width > 0 and 0 <= self.class_tokens <= 64 and (fixed == 0 or fixed > self.class_tokens)

    def with_width(self, width: int) -> "Model":
        """As a layer sees it whose residual stream has this width."""
        return replace(self, hidden=width)

    @property
    def layers(self) -> int:
        return len(self.pattern)

    @property
    def mtp_kinds(self) -> tuple[int, ...]:
        return self.mtp_pattern or self.pattern[-1:]

    @property
    def hybrid(self) -> bool:
        """its layers are one mixer each"""
        return self.inputs != "features" and any(kind.blocks == 1 for kind in self.kinds)

    @property
    def plain_layers(self) -> bool:
        """every layer has the model's width and tokens, and nothing beside its mixer and feed-forward"""
        return not any(k.mixer or k.further or k.cross or k.width or k.tokens for k in self.kinds)
