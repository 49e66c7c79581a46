"""Seconds for each piece of work: kernels on a GPU, collectives on a placed fabric."""
