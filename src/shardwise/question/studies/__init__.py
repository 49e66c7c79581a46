"""Facts of one case for `report`: a policy's estimate, its step on the network, why it wins."""
