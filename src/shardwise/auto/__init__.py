"""A user's own model, split for them: what can be cut is found by running its blocks, and every split is proven."""
