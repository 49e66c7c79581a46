"""What the model says of one case: a policy's estimate, its step on the network, why it wins, as facts for `report`."""
