"""Splits a user's own model: running its blocks shows what can be cut, and every split is proven."""
