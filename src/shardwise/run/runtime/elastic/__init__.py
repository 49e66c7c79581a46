"""Training that goes on when a replica is lost: the others finish the step, and it rejoins from a peer's memory."""
