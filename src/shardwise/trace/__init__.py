"""A user's own training step on a pretended world: what it sends, holds and computes, then what that costs."""
