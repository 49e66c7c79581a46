"""The double binary tree: two spanning trees, and no rank is inner in both."""

import pytest

from shardwise.plugins.collectives._trees import double_tree, height


@pytest.mark.parametrize("size", range(2, 65))
def test_two_spanning_trees_of_logarithmic_height(size):
    inner = []
    for tree in double_tree(size):
        assert len(tree) == size - 1
        inner.append(set(tree.values()) - ({root for root in range(size) if root not in tree}))
        for place in range(size):
            steps = 0
            while place in tree:
                place, steps = tree[place], steps + 1
            assert steps <= height(size)
    assert height(size) <= size.bit_length()
    assert not inner[0] & inner[1]
