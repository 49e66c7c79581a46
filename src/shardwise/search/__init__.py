"""Which layers, ranks, experts or cuts are best: problems, and methods that solve them."""
