"""The side of a lab run that needs torch: one process a GPU, forked after torch is there, each in its namespace."""
