"""What a compiler makes of a traced step: passes between two products are one kernel, what such a kernel makes and uses
up itself is never in memory, and what the backward can make again from what is kept anyway is not kept.

torch.compile's own rule (its min-cut partitioner) is followed in five points: results of products and attention that
the backward reads are kept, so is what the backward's products read, what passes made of kept tensors is made again,
so is what was only repeated from something smaller, and where passes made something larger out of a product's result or
a sum (probabilities in 32 bits out of logits in 16) that nothing behind the next product reads, the smaller of the two
is kept. What a compiled module returns and nobody goes on from (logits beside a loss) has a gradient of zeros.
"""

from collections.abc import Iterable
from itertools import dropwhile, takewhile

from shardwise.run.trace.events import Capture, Pass, Product, StepEvent, TensorStorage
from shardwise.run.trace.rates import padded_bytes

COMPILED_PASSES = 1.1
"""traffic of what a compiler leaves over the ideal of `fused` (steps measured on one H200)"""
Change = tuple[int, TensorStorage, int]
"""where among the changes of memory, whose, bytes"""


def fused(captured: Capture, passes: float = COMPILED_PASSES) -> list[StepEvent]:
    """Passes between two products as one, which reads what comes from outside and writes what outlives it. `passes`:
    traffic of the compiler's kernels over that ideal."""
    died = _deaths(captured)
    found: list[StepEvent] = []
    for chain, end in _chains(captured):
        found.append(_joined(chain, end, died, passes) if _joins(chain[0]) else chain[0])
    return found


def compiled_changes(captured: Capture) -> list[Change]:
    """The changes of memory of the compiled step."""
    died = _deaths(captured)
    again, kept_for = _made_again(captured)
    touched: dict[int, set[int]] = {}
    freed: dict[int, int] = {}
    for number, (chain, end) in enumerate(_chains(captured)):
        for event in chain:
            for held, _ in (*event.reads, *event.writes):
                key = id(held)
                if key in again and event.phase == "backward":
                    continue
                # a product is no chain: what it touches is in memory
                touched.setdefault(key, set()).add(number if _joins(event) else -1 - number)
                if key in again:
                    freed[key] = end
    inside = {key for key, chains in touched.items() if len(chains) == 1 and min(chains) >= 0}
    ends = {number: end for number, (_, end) in enumerate(_chains(captured))}
    never = {key for key in inside if key in again or died.get(key, len(captured.changes)) < ends[min(touched[key])]}
    # what is kept in another's place lives as long as that would have
    for key, other in kept_for.items():
        freed[key] = max(died.get(key, 0), died.get(other, len(captured.changes)))
    behind = _behind_kernels(captured)
    size: dict[int, int] = {}
    found: list[Change] = []
    for index, (held, change) in enumerate(captured.changes):
        key = id(held)
        if key in never or (key in freed and change < 0):
            continue
        found.append((behind.get(index, index) if change < 0 else index, held, change))
        if key in freed:
            size[key] = size.get(key, 0) + change
    found += _zeros(captured)
    held_by = {id(held): held for held, _ in captured.changes}
    found += [(behind.get(freed[key], freed[key]), held_by[key], -bytes_) for key, bytes_ in size.items()]
    for event in captured.events:
        copied = padded_bytes(event.work) if event.compiled and isinstance(event.work, Product) else 0
        if copied:
            held = TensorStorage("working", copied)
            found += [(event.at, held, copied), (event.at, held, -copied)]
    return sorted(found, key=lambda change: change[0])


def _behind_kernels(captured: Capture) -> dict[int, int]:
    """Where what is freed while a chain runs is free: behind it, since one kernel reads and writes it all at once."""
    return {
        index: chain[-1].at
        for chain, _ in _chains(captured) if _joins(chain[0])
        for index in range(chain[0].at, chain[-1].at)
    }  # fmt: skip


def _joins(event: StepEvent) -> bool:
    return bool(event.compiled) and isinstance(event.work, Pass) and not event.scope and event.phase != "optimizer"


def _entered(event: StepEvent) -> tuple[str, int]:
    """No kernel reaches from one compiled call into the next."""
    return event.phase, event.compiled


def _chains(captured: Capture) -> Iterable[tuple[list[StepEvent], int]]:
    """Events a compiler makes one kernel of, and where among the changes of memory they end."""
    chain: list[StepEvent] = []
    for event in captured.events:
        if chain and not (_joins(event) and _joins(chain[0]) and _entered(event) == _entered(chain[0])):
            yield chain, event.at
            chain = []
        chain.append(event)
    if chain:
        yield chain, len(captured.changes)


def _made_again(captured: Capture) -> tuple[set[int], dict[int, int]]:
    """Storages of the forward pass that the backward makes again, and products' results kept for one of them though the
    backward as written does not read them."""
    by_passes, by_products = _read_behind(captured)
    later = _read_later(captured)
    there = {id(held) for held, _ in captured.changes}
    there -= {id(held) for event in captured.events if event.phase == "forward" for held, _ in event.writes}
    again: set[int] = set()
    roots: dict[int, dict[int, int]] = {}
    kept_for: dict[int, int] = {}
    for event in captured.events:
        if event.phase != "forward":
            continue
        passes = isinstance(event.work, Pass) and event.compiled
        reads = [(id(held), size) for held, size in event.reads if id(held) not in there]
        missing = {root: size for key, read in reads for root, size in roots.get(key, {key: read}).items()}
        if sum(read for _, read in reads) < sum(missing.values()):
            missing = dict(reads)  # the sum of a residual is smaller than all products it was added up from
        for held, size in event.writes:
            key = id(held)
            read = sum(bytes_ for _, bytes_ in event.reads)
            small = size * SMALL < read
            kept = key in by_products and size < WIDENED * read
            smaller = key in by_passes and key not in later and sum(missing.values()) < size
            if passes and (not missing or smaller) and not kept and not (small and key in by_passes):
                kept_for.update(dict.fromkeys(missing, key))
                there.update((*missing, key))
                again.add(key)
            elif key in by_passes or key in by_products:
                there.add(key)
                again.discard(key)
            elif passes:
                roots[key] = missing
    return again & (by_passes | by_products), kept_for


def _read_later(captured: Capture) -> set[int]:
    """Storages that the forward pass reads again behind the product that follows them: the sum of a residual."""
    made: dict[int, int] = {}
    found: set[int] = set()
    for number, (chain, _) in enumerate(_chains(captured)):
        for event in chain if chain[0].phase == "forward" and _joins(chain[0]) else ():
            found.update(id(held) for held, _ in event.reads if made.get(id(held), number) < number)
            made.update({id(held): number for held, _ in event.writes if id(held) not in made})
    return found


def _zeros(captured: Capture) -> list[Change]:
    """Gradients of what a compiled module returned and nobody goes on from; autograd holds them while the compiled
    backward that follows runs."""
    used = {id(held) for place, event in enumerate(captured.events) if event.phase != "backward"
            for held, _ in event.reads if held.returned <= place}  # fmt: skip
    found: list[Change] = []
    for index, (held, change) in enumerate(captured.changes):
        if held.returned and change > 0 and id(held) not in used:
            at = _backward_behind(captured, index)
            zeros = TensorStorage("working", change)
            found += [(at[0], zeros, change), (at[-1], zeros, -change)] if at else []
    return found


def _backward_behind(captured: Capture, index: int) -> list[int]:
    """Places, among the changes of memory, of the backward pass that follows one of them."""
    behind = dropwhile(lambda event: event.at <= index or event.phase != "backward", captured.events)
    return [event.at for event in takewhile(lambda event: event.phase == "backward", behind)]


WIDENED = 2
"""what is so much larger than what it was made of (keys repeated for several heads) is made again also for a product"""
SMALL = 4
"""a reduction whose result is this much smaller than what it reads is kept"""


def _read_behind(captured: Capture) -> tuple[set[int], set[int]]:
    """Storages that the backward's compiled passes read, and those that anything else in it reads."""
    passes: set[int] = set()
    products: set[int] = set()
    for event in captured.events:
        if event.phase == "backward":
            again = event.compiled and isinstance(event.work, Pass)
            (passes if again else products).update(id(held) for held, _ in event.reads)
    return passes, products


def _joined(chain: list[StepEvent], end: int, died: dict[int, int], passes: float) -> StepEvent:
    made: dict[int, int] = {}
    read: dict[int, int] = {}
    for event in chain:
        for held, size in event.reads:
            if id(held) not in made:
                read[id(held)] = max(read.get(id(held), 0), size)
        made.update({id(held): size for held, size in event.writes})
    kept = sum(size for key, size in made.items() if died.get(key, end) >= end)
    moved = Pass(round((sum(read.values()) + kept) * passes))
    first = chain[0]
    reads = tuple(touched for event in chain for touched in event.reads)
    writes = tuple(touched for event in chain for touched in event.writes)
    calls = sum(event.calls for event in chain)
    return StepEvent("fused", first.phase, moved, "", reads, writes, first.at, calls, compiled=first.compiled)


def _deaths(captured: Capture) -> dict[int, int]:
    """Where in the changes each storage is freed for the last time."""
    size: dict[int, int] = {}
    died: dict[int, int] = {}
    for index, (held, change) in enumerate(captured.changes):
        key = id(held)
        size[key] = size.get(key, 0) + change
        if size[key]:
            died.pop(key, None)
        else:
            died[key] = index
    return died
