"""What training programs differ in, one struct for each concern. Names of settings are unique over all of them.

A default is a program that fuses what can be fused and overlaps what is usually overlapped.
"""

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

Context = Literal["ring", "ulysses", "gather"]
CONTEXT: tuple[str, ...] = get_args(Context)
StageSplit = Annotated[str, Meta(pattern=r"^(even|by_cost|\d{1,5}(,\d{1,5})*)$")]
"""a rule, or the layers of each stage"""
Embedding = Literal["vocab", "broadcast"]
EMBEDDINGS: tuple[str, ...] = get_args(Embedding)
AttentionSplit = Literal["heads", "gather-qk"]
ATTENTION_SPLITS: tuple[str, ...] = get_args(AttentionSplit)


class Kernels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which operations are fused, and how fast kernels run in a long training run."""

    kernel_efficiency: float = 1.0
    """matrix-product rate in a long training run over the rate of the fitted kernel curves"""
    keeps_rows_apart: bool = False
    """results of products whose rows would not start on 16 bytes are written with room behind each row"""
    attention_kernel: Literal["flash", "sdpa", "flash2", "flash1"] = "flash"
    """the fused attention kernel of its time: what the vendor's library has now, FlashAttention-2 or the first one"""
    attention_efficiency: float = 1.0
    """rate of the attention kernel over its fitted curve"""
    scores: Literal["fused", "compiled", "separate"] = "fused"
    """of attention that writes its scores: scale, mask, softmax and dropout are one kernel, chains of a compiler, or
    operations of their own"""
    unfused_attention: bool = False
    """attention writes its scores to memory; decides for a measured run that does not say what it used"""
    pointwise_passes: float = 1.0
    """memory traffic of norms, activations and residuals over a fully fused implementation"""
    one_kernel_per_op: bool = False
    """every element-wise operation, rounding included, goes through memory by itself; else chains are one kernel"""
    fused_glu: bool = True
    """the gated activation is one kernel: it keeps its input only"""
    fused_norm: bool = True
    """a norm is one kernel and keeps its input only, in the residual dtype; if not, it is written out in fp32, one
    operation after the other"""
    separate_projections: bool = False
    """queries, keys and values are three products, gate and up two; where each rounds its input, each keeps a copy"""
    fuses_rotation: bool = True
    """queries and keys are rotated in one kernel; if not, by a chain of products and sums"""
    fuses_scaled_rotation: bool = True
    """so they are also where YaRN multiplies the rotation by a factor"""
    copies_heads: bool = False
    """queries, keys and values are copied into the order that attention takes, keys and values joined for the rotation,
    and the output copied back"""
    rebuilds_residual: bool = False
    """the sum between a layer's two blocks is made again in the backward pass: the first block's output is kept for
    it, in compute precision"""
    grad_accumulation_bytes: float = 0.0
    """bytes moved per parameter and micro-batch to add a gradient to its buffer; 0: the product does it"""
    zeroes_gradients: bool = False
    """sums of gradients stay in memory and are set to zero before every step"""
    optimizer_passes: float = 1.0
    """memory traffic of the optimizer step over one fused pass"""


class HostCosts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the host costs: launches, gaps between kernels, and what is done once a step."""

    host_s_per_op: float = 6e-6
    """time the host needs to launch one operation; decides when kernels are small"""
    ops_per_layer: float = 24.0
    """operations a dense layer launches in the forward pass (twice that in the backward)"""
    ops_per_product: float = 0.0
    """operations of each product beyond the four of a dense layer, or the two of attention where experts are behind it:
    latent attention and shared experts have more; 0: launches are not counted by kind of layer"""
    narrow_launches: float = 1.0
    """launches of a layer in eight bits or fewer over those in 16: scales, casts and copies turned round"""
    ops_per_end: float = 6.0
    """operations that the embedding launches in the forward pass, and the head with its loss"""
    ops_per_recompute: float = 0.0
    """operations on the host that recomputing a layer or module costs besides its own: state put back, hooks"""
    ops_per_collective: float = 4.0
    """operations a tensor- or expert-parallel collective adds on the host"""
    ops_per_peer: float = 0.0
    """operations that a collective of ZeRO-3 costs the host for every rank that takes part, while the GPU waits"""
    gap_s_per_op: float = 0.0
    """time the GPU idles between the kernels of one operation and the next"""
    stall_s_per_peer: float = 0.0
    """host time a tensor-parallel collective waits for each of its ranks while a pipeline transfer to another node is
    outstanding (both go through one hardware queue)"""
    ops_per_update: float = 0.0
    """operations that updating one tensor, or a rank's piece of it, costs the host; 0: all are one launch"""
    step_overhead_s: float = 0.0
    """per step, neither compute nor communication: data, logging, scalar synchronisation"""


class ExpertSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How expert layers run: their products, their launches, and the exchange of tokens."""

    grouped_gemm_efficiency: float = 1.0
    """expert products (many small ones) over one product of the same total size"""
    expert_biases: Literal["fused", "unfused", "biases_unfused", "fused_in_rack"] = "fused"
    """biases of experts, and the clamp before their activation: in the kernels of their products; the down product's
    bias and the clamp as operations of their own; both biases so, the clamp with the activation; or in the kernels only
    where products take eight bits or fewer in one NVLink domain of several nodes, and else as operations"""
    ops_per_expert_layer: float = 30.0
    """operations that routing, permutation and experts add to `ops_per_layer`, waits of the host for the token counts
    included"""
    narrow_expert_launches: float = 1.0
    """the same of `ops_per_expert_layer_in_node`"""
    ops_per_expert: float = 0.0
    """further ones for each expert of a rank, where a loop runs them one after the other"""
    ops_per_expert_layer_in_node: float = -1.0
    """the same where the experts lie inside one node and the program exchanges them there by a plain all-to-all, for
    which the host must read the token counts; -1 means as `ops_per_expert_layer`"""
    ops_per_expert_layer_in_rack: float = -1.0
    """operations of the whole layer where they lie inside one NVLink domain of several nodes and the program replays
    attention, routing and their preparation as graphs; -1: nothing is replayed"""
    overlap_ep: float = 0.0
    """share of the expert all-to-all that runs under compute"""
    overlap_ep_between_nodes: float = -1.0
    """the same where the experts lie on several nodes; -1 means as `overlap_ep`"""
    dispatch: Literal["copies", "once", "gather"] = "copies"
    """the expert exchange sends a copy of a token for each of its experts; or one to each rank that has some of them,
    and between nodes one to each node; or all ranks gather the tokens of all, and add up what comes back"""
    exchange_setup_s: float = 0.0
    """of each exchange that sends a token once: who gets how much is counted and told before the first byte"""
    exchange_sms: float = 0.0
    """multiprocessors that an exchange under compute takes from it"""
    atomic_sums: bool = False
    """copies of a token, and their gradients, are added up one number at a time by PyTorch's index_add or scatter_add,
    in 16 bits where the residual stream has them; if not, by a kernel that reads each copy once"""
    second_sort: bool = False
    """behind the exchange copies are sorted once more, by expert, then weighted and brought back, all by PyTorch's own
    indexing; if not, a kernel reads and writes each of them once"""
    capacity_factor: float = 0.0
    """places that each expert has for a batch's tokens over its even share, filled or not; what finds none is dropped;
    0: experts take all that is sent to them"""
    capacity_masks: bool = False
    """tokens come to such places and back by products with masks of tokens by places (GShard), not by their indices"""
    routing: Literal["even", "in_order"] = "even"
    """the experts of a token are any of all; or one after the other, as a benchmark's gate deals them out"""
    expert_imbalance: float = 1.0
    """tokens of the fullest expert rank over the mean: its products and its exchange take that much longer, and it
    holds that much more"""
    free_router: bool = False
    """a router deals tokens out as it learned to and nobody told how evenly: what the fullest rank makes of a step is
    in the band"""


class Overlap(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What communication runs under compute, and how much of it can hide there."""

    overlap_grad: bool = True
    overlap_sharded_grad: bool = True
    """gradients that ZeRO shards are reduced under the backward too, not only those that are replicated"""
    overlap_param: bool = True
    overlap_tp: bool = False
    tp_backward_hidden: float = 0.0
    """share of the backward pass's tensor-parallel collectives that runs under weight-gradient products"""
    overlap_pp: bool = False
    hidden_share: float = 0.85
    """share of an overlapped collective that can hide under compute at best"""
    gathers_hidden: float = -1.0
    """the same of what ZeRO-3 gathers and reduces in every micro-batch; -1 means as `hidden_share`"""
    one_collective: bool = False
    """no collective starts before the one in flight is done, over whatever link (XLA's scheduler); if not, messages on
    different links run at the same time"""
    overlap_slowdown: float = 0.06
    """compute slows by this share while a collective runs under it (SMs and memory bandwidth are shared)"""

    @property
    def slowed_share(self) -> float:
        """Of the time a collective is under compute: what that compute takes longer."""
        return self.overlap_slowdown / (1.0 + self.overlap_slowdown)


class NetworkUse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How messages are cut, and what the program reaches of the network."""

    bucket_bytes: float = 160e6
    """gradients are reduced in messages of this size"""
    bucket_bytes_per_rank: float = 0.0
    """messages grow to this many bytes for each data-parallel rank, so that latency stays a small share"""
    gather_bucket_bytes: float = 160e6
    """parameters are gathered in messages of this size (ZeRO-1 and 2)"""
    bucket_copy_bytes: float = 0.0
    """bytes moved for each parameter whenever its gradient is reduced: copied into a bucket, joined, divided; 0: it is
    reduced where it was written"""
    by_owner: bool = False
    """ZeRO-1 gives a tensor whole to one rank: every rank gets the sum of all gradients, and new parameters are sent
    from their owners, in one message for each rank that owns any, instead of shares of buckets"""
    sums_whole: bool = False
    """with ZeRO-1 and 2, too, every rank gets the sum of all gradients; new parameters are gathered all the same"""
    gathers_tensors_above: float = 0.0
    """ZeRO-3 gathers and reduces every tensor of more elements than this in a message of its own, and smaller ones stay
    whole; 0: a layer at a time"""
    copies_gathered: bool = False
    """what ZeRO-3 gathers is copied out of the message's buffer, and gradients into one, while layers wait"""
    reuse_distance: float = 0.0
    """ZeRO-3 lets go of a gathered tensor unless it is used again before so many elements of others, so a longer layer
    is gathered once more between its recompute and its backward; 0: a layer stays gathered for both"""
    fabric_efficiency: float = 1.0
    """achieved over modelled network bandwidth between nodes"""
    boundary_message_s: float = 0.0
    """what each message of a tensor-parallel collective over several nodes takes at the boundary, besides its bytes: a
    ring of n ranks sends n - 1 there one after the other"""
    fitted_gpus: int = 8
    """median GPUs of the runs on several nodes that the constants were fitted on: they hold what such a run loses to
    its slowest GPU"""
    scatter_gather_p2p: bool = True
    """pipeline transfers send 1/tp of the tensor from each tensor-parallel rank"""
    transfer_overhead_s: float = 0.0
    """per pipeline transfer between nodes, besides the bytes: handshake and metadata on the host"""
    fills_shards: bool = False
    """ZeRO-3 fills every tensor up to a multiple of the ranks along its first dimension (FSDP2)"""
    cuts_experts: bool = False
    """where the ranks outnumber the experts, ZeRO-3 cuts these along their second dimension, and fills none up"""
    regather_with_pp: bool = False
    """with pipeline stages ZeRO-3 gathers and frees parameters in every micro-batch; else it holds them all step"""
    reduces_last: Literal["never", "rounds", "stages", "always"] = "stages"
    """where ZeRO-2 and 3 reduce gradients behind the last micro-batch alone: until then every rank adds up whole ones,
    in the dtype they are reduced in. With pipeline stages PyTorch does (distributed/pipelining/stage.py:
    backward_maybe_with_nosync); or with chunked stages a chunk does behind each round of micro-batches that it takes
    one after the other"""


class MemoryUse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What memory holds besides the tensors a step needs, and what recompute repeats and keeps."""

    gathered_inputs_saved: bool = False
    """sequence parallelism keeps the gathered input of each split product instead of gathering it again"""
    gathered_kept_less: int = -1
    """sequence parallelism's gathered inputs stay in memory where there is room: without stages for every micro-batch
    in flight, with stages for this many fewer (observed, not documented by the program); -1: they are freed at once"""
    gathered_working: float = 0.0
    """whole tensors that sequence parallelism holds while a layer's backward runs: a gathered output gradient, and the
    whole input gradient or the input gathered again; 0: they are within `reserve_bytes`"""
    rings_in_fp32: bool = False
    """a ring of context-parallel ranks gathers all keys and values at once and adds outputs and gradients up in fp32
    (PyTorch: torch/distributed/tensor/experimental/_context_parallel/_attention.py, its _AllGatherRotater and
    _SDPAMerger)"""
    leaves_with_moments: Literal["", "gradients", "weights"] = ""
    """what leaves for the host with an offloaded optimizer: nothing else, shards of gradients too, or shards of weights
    and of gradients"""
    frees_gradients: bool = False
    """gradients are freed after each step; with one micro-batch they then arrive while activations leave, and the peak
    holds only the larger of the two"""
    keeps_buckets: bool = False
    """replicas that share nothing keep the buckets their gradients are reduced in all the time, beside the gradients"""
    update_copies: float = 0.0
    """copies of a rank's moments that are alive while its weights are updated: 1 where the optimizer goes over all
    tensors operation by operation, 0 where one kernel does all of it"""
    grad_copy_bytes: float = 0.0
    """bytes per parameter of a second gradient in compute precision, alive beside the accumulation buffer"""
    act_overhead: float = 1.0
    """saved activations over the tensor list"""
    base_bytes: float = 0.0
    """memory counted besides tensors (workspaces, communication buffers; the CUDA context where the tool shows it)"""
    reserve_bytes: float = 2.5e9
    """what must stay free beside the counted peak for a run to live: CUDA context, communication buffers, fragments"""
    fragmentation: float = 0.0
    """share of the tensors' bytes lost in the allocator"""
    selective_attention: float = 1.0
    """selective recompute repeats this share of the attention core"""
    selective_repeat: float = 0.0
    """selective recompute repeats this share of a layer's forward besides the attention core"""
    selective_kept: float = 1.0
    """selective recompute keeps this share of a layer's tensors besides its input and the attention core"""
    latent_recompute: Literal["core", "up"] = "core"
    """of latent attention, selective recompute repeats the core; or the up projections, and drops queries, keys and
    values"""
    selective_experts: bool = False
    """beside attention without latents, selective recompute repeats norms and the experts' activation: flash attention
    has no core to repeat"""


class Loss(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head and its loss: padding, passes over the logits, and what is alive of them."""

    pads_vocab: bool = True
    """the embedding table is padded to a multiple of 128 rows for each tensor-parallel rank"""
    pads_whole_vocab: bool = True
    """so it is where one rank holds all of it"""
    embedding: Embedding = "vocab"
    """with tensor parallelism the vocabulary table is cut, or the first rank has it and sends what it looked up"""
    gathers_logits: bool = False
    """with tensor parallelism every rank gathers all logits and takes the whole loss of them"""
    loss_kind: Literal["plain", "fused", "chunked"] = "plain"
    """the loss it has unless a policy names another"""
    loss_logit_bytes: float = 10.0
    """of its own plain or fused loss, bytes per logit alive at the fullest moment; 0: the logits alone, their gradient
    takes their place"""
    loss_passes: float = 6.0
    """of that loss, bytes moved per logit byte of compute dtype, forward and backward"""
    chunk_tokens: int = 0
    """tokens of a chunk of its chunked loss; 0: as `loss_chunks` says"""
    loss_chunks: int = 0
    """chunks that its chunked loss makes of a micro-batch; 0: as many as keep one as small as what the head reads"""
    chunk_logit_bytes: float = 2.0
    """bytes per logit of a chunk alive at the fullest moment; by default in place, as in Liger"""
    chunk_grad_bytes: float = 2.0
    """bytes per element of what the head reads, in which a chunked loss collects its gradient"""
    chunk_passes: float = 4.0
    """bytes moved per logit byte of a chunked loss: Liger's kernel reads twice, then reads and writes the gradient"""
    repeats_head: bool = False
    """its chunked loss keeps no chunk's logits for the backward, which runs the product once more"""


class Abilities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the program can do, and the precision recipe it means by a dtype; a plan looks at nothing else unless it is
    asked for by name."""

    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    """pipeline schedules; 'none' alone means it has no pipeline, 'all' every one there is"""
    interleaves_unasked: bool = True
    """a measured run that does not say in how many chunks its stages are cut has the fastest number of them; if not,
    one, unless its text or notes speak of interleaving"""
    zero: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages"""
    least_zero: int = 0
    """the stage it runs when told a lower one"""
    zero_with_stages: int = 1
    """the highest of them it combines with a pipeline"""
    offload: tuple[str, ...] = ("none", "optimizer")
    """what it can keep in the host's memory"""
    recompute: tuple[str, ...] = ("none", "selective", "full")
    """what it can run again instead of keeping it"""
    micro_batches_per_stage: int = 0
    """micro-batches it cuts a replica's batch into for each rank of a pipeline when it is told neither how many nor how
    large; 0: it has to be told"""
    unstated_ep: int = 1
    """most ranks that share the experts of a measured run which does not say how many do"""
    limits: tuple[str, ...] = ()
    """settings it cannot run beside others, by their names in `limits.LIMITS`"""
    limits_with_adapters: tuple[str, ...] = ()
    """further ones where adapters are trained"""
    predicts_further: bool = True
    """it trains the extra layers of a model that predict further tokens"""
    empty_stages: int = 10_000
    """stages without any parameter that the program still starts with"""
    stage_split: StageSplit = "even"
    """layers per pipeline stage: equal counts, or cut where the running cost (head included) passes an equal share"""
    attention_split: AttentionSplit = "heads"
    """tensor parallelism cuts attention by heads; or queries and keys are gathered and only values stay local"""
    context_parallel: Context = "ring"
    """attention over context-parallel ranks: keys and values go round, heads are exchanged for the sequence, or keys
    and values are gathered"""
    precision_bf16: str = "bf16"
    precision_fp16: str = "fp16"
    precision_fp8: str = "fp8"
    precision_fp4: str = "fp4"
