"""Post-training for real: ranks that roll out answers, ranks that train on them, and weights that go from one to the
other."""
