"""A model understood: its repeated blocks, the products inside them that can be cut, and why others cannot."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain

import torch
from msgspec.structs import replace
from torch import nn

from shardwise.run.auto.alike import alike
from shardwise.run.auto.blocks import BlockCall, BlockKind, Watched, block_kinds, called_again, watched
from shardwise.run.auto.cutting import holder_of
from shardwise.run.auto.experts import expert_cut
from shardwise.run.auto.flow import CutCandidate, candidates, needed_by_all, with_sum
from shardwise.run.auto.handed import handed_in
from shardwise.run.auto.homes_trial import homes_of
from shardwise.run.auto.joined import joins_of, met_elsewhere
from shardwise.run.auto.plan import AutoPlan, Column, CutKind, CutRefusal, Degrees, End, NormCut, ProductCut, Vocabulary
from shardwise.run.auto.products import is_product, widths
from shardwise.run.auto.room import COPIES, refuse_tried
from shardwise.run.auto.sequence_trial import outside_of, whole_tokens
from shardwise.run.auto.sizes import fitting
from shardwise.run.auto.spanning import as_norm
from shardwise.run.auto.trial import (
    FAILURES,
    CutTrial,
    Run,
    noisy_call,
    run_whole,
    stacked,
    tried_in,
    wide_call,
    wide_copy,
)
from shardwise.run.auto.wide import as_they_are

OTHER_INPUTS = 3
"""on which a block is run again, to see what an activation hid"""


def understood(model: nn.Module, run: Callable[[], object], degrees: Degrees, samples: int = 1) -> AutoPlan:
    """`run` makes one forward pass of the model as the user's step does and returns the losses; nothing of the model is
    changed."""
    found = block_kinds(model)
    if all(is_product(kind.first) for kind in found):
        found = [kind for kind in called_again(model, run) if not is_product(kind.first)] or found
    if not found:
        why = "no module repeats: nothing to cut or stage by blocks"
        return AutoPlan(degrees=degrees, kinds=(), refusals=(CutRefusal(where="model", why=why),), samples=samples,
                        whole=_whole(model, ()))  # fmt: skip
    seen = watched(model, found, run)
    if degrees.tp > 1 or degrees.ep > 1:  # the cuts of one block are made in all of its kind
        found = alike(model, found, seen)
    kinds = tuple(_kind(kind, seen, degrees) for kind in found)
    words, refusals = _vocabulary(model, kinds, seen, degrees.tp)
    shared = _shared(model, kinds)
    handed, late = handed_in(model, [name for kind in found for name in kind.names], run, samples)
    return AutoPlan(
        degrees=degrees, kinds=kinds, vocabulary=words, refusals=tuple(refusals), samples=samples,
        order=tuple(seen.order), handed=handed, ends=tuple(_ends(model, kinds, seen, late)),
        boundary=seen.boundary if len(seen.boundaries) == 1 else 0,
        tokens=seen.tokens, attention=seen.all_attention(found), shared=shared,
        whole=_whole(model, shared),
    )  # fmt: skip


def _whole(model: nn.Module, shared: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name, p in model.named_parameters() if name in shared or not p.dim())


def _shared(model: nn.Module, kinds: tuple[CutKind, ...]) -> tuple[str, ...]:
    blocks = [model.get_submodule(name) for kind in kinds for name in kind.blocks]
    users = Counter(each for block in blocks for each in {id(p) for p in block.parameters()})
    return tuple(name for name, p in model.named_parameters() if users[id(p)] > 1)


def _ends(model: nn.Module, kinds: tuple[CutKind, ...], seen: Watched, late: set[str]) -> Iterator[End]:
    """Only tables of words are left out of stages behind the first: what another module makes may be used by all.
    `late`: those that are used there too."""
    blocks = {name for kind in kinds for name in kind.blocks}
    inside = {id(p) for name in blocks for p in model.get_submodule(name).parameters()}
    inside -= {id(model.get_parameter(name)) for name in _shared(model, kinds)}
    users: dict[int, list[tuple[bool, bool]]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            times = seen.times.get(name, set())
            first = times == {0} and isinstance(module, nn.Embedding) and name not in late
            last = times == {len(seen.order)} and not any(block.startswith(f"{name}.") for block in blocks)
            users.setdefault(id(parameter), []).append((first, last))
    for name, parameter in model.named_parameters():
        if id(parameter) not in inside:
            known = users[id(parameter)]
            here = all(first or last for first, last in known)
            yield End(
                parameter=name, first=here and any(f for f, _ in known), last=here and any(each for _, each in known)
            )


def _kind(kind: BlockKind, seen: Watched, degrees: Degrees) -> CutKind:
    ranks = degrees.tp
    parameters = sum(p.numel() for p in kind.first.parameters())
    found = CutKind(class_name=kind.class_name, blocks=tuple(kind.names), parameters=parameters,
                 returns=seen.returns.get(kind.names[0], -1))  # fmt: skip
    call = seen.calls.get(kind.names[0])
    attends = kind.names[0] in seen.attention
    if ranks == degrees.ep == degrees.cp == 1:
        return found
    dtype = tried_in(kind.first)
    why = "the block was not called" if call is None else refuse_tried("it", parameters, COPIES * dtype.itemsize)
    if call is None or why:
        if attends and ranks == degrees.ep == 1:
            return found
        return replace(found, refusals=(CutRefusal(where=kind.names[0], why=why),), no_homes=why,
                       no_joins="" if attends else why)  # fmt: skip
    with nullcontext() if dtype is torch.float64 else as_they_are():
        return _tried(kind, seen, degrees, found, wide_call(call, dtype))


def _tried(kind: BlockKind, seen: Watched, degrees: Degrees, found: CutKind, call: BlockCall) -> CutKind:
    ranks = degrees.tp
    try:
        whole = run_whole(wide_copy(kind.first), call)
    except FAILURES as error:
        why = f"it does not run by itself: {str(error).strip().splitlines()[0][:120]}"
        none = "" if kind.names[0] in seen.attention else why
        return replace(found, refusals=(CutRefusal(where=kind.names[0], why=why),), no_joins=none)
    if degrees.cp > 1 and kind.names[0] in seen.attention:
        found = replace(found, no_joins=met_elsewhere(whole, seen.tokens))
    elif degrees.cp > 1:
        joins, why = joins_of(whole, degrees.cp, seen.tokens)
        found = replace(found, joins=joins, no_joins=why)
    if ranks == 1 and degrees.ep == 1:
        return found
    if ranks == 1:
        homes, why = homes_of(whole, degrees.ep, seen.samples)
        return replace(found, homes=homes, no_homes=why)
    cuts, refusals = _cuts(whole, ranks)
    named = [replace(each, where=f"{kind.names[0]}.{each.where}") for each in refusals]
    split = sum(
        whole.block.get_parameter(f"{name}.weight").numel()
        for cut in cuts if cut.row for name in (cut.row, *cut.sums, *(column.module for column in cut.columns))
    )  # fmt: skip
    split += sum(whole.block.get_parameter(stack.parameter).numel() for cut in cuts for stack in cut.stacks)
    found = replace(found, cuts=tuple(cuts), refusals=tuple(named), split_parameters=split)
    if not degrees.sp:
        return found
    why = "" if found.returns >= 0 else "it returns neither a tensor nor values that begin with one"
    return replace(found, outside=outside_of(kind.first, cuts),
                   whole_tokens=why or whole_tokens(whole, cuts, ranks, seen.tokens))  # fmt: skip


def _cuts(whole: Run, ranks: int) -> tuple[list[ProductCut], list[CutRefusal]]:
    cuts: list[ProductCut] = []
    tried: list[tuple[set[str], CutRefusal]] = []
    taken: set[str] = set()
    straight = {**whole.spans, **{name: row for name, (row, _) in whole.before.items() if _norm_before(whole, name)}}
    calls = [whole.call, *(noisy_call(whole.call, seed) for seed in range(OTHER_INPUTS))]
    flow, *others = (run_whole(whole.block, call, straight) for call in calls)
    for each in chain(candidates(flow, ranks, others), _with_sums(whole, flow, calls, straight, taken, ranks)):
        names = {each.row, *each.sums, *(column.module for column in each.columns)}
        if names & taken:
            continue
        cut, why = _proven(whole, each, ranks)
        if cut is None and each.stacks:
            cut, why = _proven(whole, dataclasses.replace(each, stacks=()), ranks)
        if cut is None:
            tried.append((names, CutRefusal(where=each.row, why=why)))
        else:
            cuts.append(cut)
            taken |= names
    for name, module in whole.block.named_modules():
        if stacked(module):
            cut, why = expert_cut(whole, name, ranks)
            if cut is None:
                tried.append(({name}, CutRefusal(where=name, why=why)))
            else:
                cuts.append(cut)
    refusals = [refusal for names, refusal in tried if not names & taken]
    said = {name for names, _ in tried for name in names} | taken
    left = [name for name, module in whole.block.named_modules() if is_product(module) and name not in said]
    refusals += [CutRefusal(where=name, why=_why_not(whole, name)) for name in left]
    return cuts, refusals


def _with_sums(
    whole: Run, flow: Run, calls: list[BlockCall], straight: Iterable[str], taken: set[str], ranks: int
) -> Iterator[CutCandidate]:
    """Of products that could not be cut: those before which another is summed on the way."""
    for row in (name for name, count in flow.counts.items() if count == 1):
        for summed in needed_by_all(flow, row, ranks) if row not in taken else ():
            run, *others = (run_whole(whole.block, call, straight, apart=summed) for call in calls)
            found = with_sum(run, row, summed, ranks, others)
            if found is not None and not {row, summed} & taken:
                yield found


def _why_not(whole: Run, name: str) -> str:
    count = whole.counts.get(name, 0)
    if count == 0:
        return "it is not called as a module"
    return f"it runs {count} times" if count > 1 else "no other GEMM takes its features in separate shares"


def _proven(whole: Run, each: CutCandidate, ranks: int) -> tuple[ProductCut | None, str]:
    trial = CutTrial(whole, each.row, ranks)
    around = holder_of([each.row, *(c.module for c in each.columns)])
    cut = ProductCut(around=around, columns=each.columns, row=each.row, norms=tuple(_norms(whole, each)),
                     sums=each.sums, stacks=each.stacks)  # fmt: skip
    normed = {f"{norm.module}.{weight}" for norm in cut.norms for weight in ("weight", "bias")}
    cut = replace(cut, stacks=tuple(stack for stack in cut.stacks if stack.parameter not in normed))
    fitted, why = fitting(cut, whole.block, ranks, trial.fits)
    if fitted is None:
        shared = f" ({', '.join(each.shared)} feed several ranks)" if each.shared else ""
        return None, why + shared
    inner, inputs = trial.inner(fitted)
    copied = [name for name, count in whole.counts.items() if count == 1 and f"{name}.weight" in inner]
    if copied:  # products that every rank needs whole, such as keys that all heads share
        fitted = _with_copies(whole, fitted, copied, ranks)
        inner, inputs = trial.inner(fitted)
    why = trial.proven(fitted)
    if why:
        return None, why
    if inputs:
        return None, f"{', '.join(inputs)} of the block enters between the GEMMs"
    mixed = trial.twice(fitted, inner)
    if mixed:
        return None, f"{mixed} is used before the GEMMs and between them: its gradient would be summed twice"
    return trial.counted(replace(fitted, inner=tuple(inner))), ""


def _norms(whole: Run, each: CutCandidate) -> Iterator[NormCut]:
    made = {column.module: column.indices for column in each.columns}
    for name, product in whole.spans.items():
        found = as_norm(whole.block.get_submodule(name), name, made[product]) if product in made else None
        if found is not None:
            yield found
    for name, (row, _) in whole.before.items():
        found = _norm_before(whole, name, len(each.columns[0].indices)) if row == each.row else None
        if found is not None:
            yield found


def _norm_before(whole: Run, name: str, ranks: int = 1) -> NormCut | None:
    """Of all that a product takes, shared out as that is."""
    row, gated = whole.before[name]
    width = whole.inputs[row].shape[-1] // ranks
    shares = tuple(tuple(range(rank * width, (rank + 1) * width)) for rank in range(ranks))
    return as_norm(whole.block.get_submodule(name), name, shares, gated=gated)


def _with_copies(whole: Run, cut: ProductCut, names: list[str], ranks: int) -> ProductCut:
    """Products that every rank has whole, and columns that read what those make: there gradients stay each rank's own
    (the latent keys and values of one attention, beside the rotary key that all heads share)."""
    copies = [
        Column(module=name, indices=(tuple(range(whole.outputs[name].shape[-1])),) * ranks) for name in names
    ]  # fmt: skip
    columns = (*cut.columns, *copies)
    inside = {each.module for each in columns if _reads(whole, each.module, [n for n in names if n != each.module])}
    return replace(cut, columns=tuple(replace(each, inside=each.module in inside) for each in columns))


def _reads(whole: Run, name: str, makers: list[str]) -> bool:
    """Whether what enters the product is made of what one of these makes."""
    into = whole.inputs[name]
    if not makers or not into.requires_grad:
        return False
    made = [whole.outputs[maker] for maker in makers]
    return any(x is not None for x in torch.autograd.grad(into.sum(), made, retain_graph=True, allow_unused=True))


def _vocabulary(
    model: nn.Module, kinds: tuple[CutKind, ...], seen: Watched, ranks: int
) -> tuple[Vocabulary, list[CutRefusal]]:
    if ranks == 1:
        return Vocabulary(), []
    blocks = tuple(name for kind in kinds for name in kind.blocks)
    outside = [
        (name, module) for name, module in model.named_modules(remove_duplicate=False)
        if name in seen.outputs and not any(name.startswith(f"{block}.") for block in blocks)
    ]  # fmt: skip
    heads = [(n, m) for n, m in outside if type(m) is nn.Linear]
    words = {m.num_embeddings for _, m in outside if isinstance(m, nn.Embedding)}
    heads = [(n, m) for n, m in heads if widths(m)[1] in words]
    words &= {widths(m)[1] for _, m in heads}
    tables = [(n, m) for n, m in outside if isinstance(m, nn.Embedding) and m.num_embeddings in words]
    uneven = [(n, m) for n, m in (*tables, *heads) if m.weight.shape[0] % ranks]  # type: ignore[index]
    if uneven:
        rows = uneven[0][1].weight.shape[0]  # type: ignore[index]
        return Vocabulary(), [
            CutRefusal(where=n, why=f"{rows} tokens of the vocabulary are not shared evenly by {ranks} ranks")
            for n, _ in uneven
        ]
    return Vocabulary(
        tables=tuple(n for n, _ in tables), heads=tuple(n for n, _ in heads),
        head_inputs=tuple(seen.inputs[n] for n, _ in heads), head_outputs=tuple(seen.outputs[n] for n, _ in heads),
        table_outputs=tuple(seen.outputs[n] for n, _ in tables),
        table_calls=tuple(seen.counts[n] for n, _ in tables), head_calls=tuple(seen.counts[n] for n, _ in heads),
    ), []  # fmt: skip
