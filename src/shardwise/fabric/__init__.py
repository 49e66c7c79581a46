"""What a policy does to the network, link by link: graph, routing, placement, flows, what is asked of the fabric."""

from shardwise.fabric.links import Links, RoutedFabric, Routes
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring

__all__ = ["Links", "RoutedFabric", "Routes", "Tree", "Wiring", "tree_of"]
