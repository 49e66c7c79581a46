"""A step of reinforcement learning: rollout, log-probabilities, update, weights back to the engine."""
