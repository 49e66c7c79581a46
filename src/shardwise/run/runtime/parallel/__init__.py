"""How ranks share a model: groups of ranks, recorded messages, and each kind of split."""
