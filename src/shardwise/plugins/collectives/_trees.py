"""Two binary trees over the same ranks, each for half of the data: a rank is inner in at most one of them, so that
every rank sends about the same (Sanders, Speck, Träff 2009)."""

from collections.abc import Iterator, Sequence

from shardwise.plugins.collectives._contract import Round
from shardwise.plugins.collectives._flows import flows
from shardwise.plugins.collectives._wire import Array, Wire


def _parent(place: int, size: int) -> int:
    """In the tree whose odd places are leaves; place 0 is the root."""
    low = place & -place
    up = (place ^ low) | (low << 1)
    return up if up < size else place ^ low


def double_tree(size: int) -> tuple[dict[int, int], dict[int, int]]:
    """child -> parent of both trees. The second is the first mirrored (even size) or shifted by one (odd size)."""
    first = {place: _parent(place, size) for place in range(1, size)}

    def moved(place: int) -> int:
        return size - 1 - place if size % 2 == 0 else (place + 1) % size

    return first, {moved(child): moved(parent) for child, parent in first.items()}


def _depth(tree: dict[int, int], place: int) -> int:
    return 0 if place not in tree else 1 + _depth(tree, tree[place])


def height(size: int) -> int:
    first, _ = double_tree(size)
    return max((_depth(first, place) for place in first), default=0)


def sent_up(size: int) -> list[float]:
    """Fraction of the buffer each place sends towards the roots."""
    return [sum(0.5 for tree in double_tree(size) if place in tree) for place in range(size)]


def sent_down(size: int) -> list[float]:
    """Fraction of the buffer each place sends towards the leaves."""
    return [
        sum(0.5 for tree in double_tree(size) for parent in tree.values() if parent == place) for place in range(size)
    ]


def _by_depth(tree: dict[int, int], deepest_first: bool) -> list[tuple[int, int, int]]:
    edges = [(_depth(tree, child), child, parent) for child, parent in tree.items()]
    return sorted(edges, reverse=deepest_first)


def tree_reduce(wire: Wire, groups: list[list[int]], halves: dict[int, list[Array]]) -> None:
    """halves[rank] = the two halves; afterwards the root of each tree holds the sum of its half."""
    size = len(groups[0])
    for group in groups:
        for half, tree in enumerate(double_tree(size)):
            for _, child, parent in _by_depth(tree, deepest_first=True):
                data = wire.send(group[child], halves[group[child]][half])
                halves[group[parent]][half] = halves[group[parent]][half] + data
    wire.rounds += height(size)


def tree_broadcast(wire: Wire, groups: list[list[int]], halves: dict[int, list[Array]]) -> None:
    size = len(groups[0])
    for group in groups:
        for half, tree in enumerate(double_tree(size)):
            for _, child, parent in _by_depth(tree, deepest_first=False):
                halves[group[child]][half] = wire.send(group[parent], halves[group[parent]][half])
    wire.rounds += height(size)


def tree_rounds(groups: Sequence[Sequence[int]], fraction: float, up: bool) -> Iterator[Round]:
    """Both trees of every group at once, a depth per round; each edge carries half of `fraction`."""
    size = len(groups[0])
    edges = [edge for tree in double_tree(size) for edge in _by_depth(tree, deepest_first=up)]
    for depth in sorted({depth for depth, _, _ in edges}, reverse=up):
        ends = [(child, parent) if up else (parent, child) for at, child, parent in edges if at == depth]
        pairs = [(group[a], group[b]) for group in groups for a, b in ends]
        yield flows([source for source, _ in pairs], [target for _, target in pairs], fraction / 2)
