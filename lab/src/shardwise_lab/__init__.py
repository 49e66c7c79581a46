"""Real jobs over an emulated fabric: a small cluster of network namespaces, measured beside the prediction."""
