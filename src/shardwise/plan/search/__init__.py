"""Optimization of stages, ranks, experts and cuts: problems, and methods that solve them."""
