"""The training loop: data, optimizer, logs, checkpoints, restarts."""
