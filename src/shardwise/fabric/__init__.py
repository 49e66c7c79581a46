"""Network load of a policy, link by link: graph, routing, placement, flows, requirements."""

from shardwise.fabric.links import Links, RoutedFabric, Routes
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring

__all__ = ["Links", "RoutedFabric", "Routes", "Tree", "Wiring", "tree_of"]
