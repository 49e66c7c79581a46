"""A user's own training step in a fake process group: what it sends, keeps and computes, then what that costs."""
