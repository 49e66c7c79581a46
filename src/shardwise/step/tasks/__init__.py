"""A pipeline's work as tasks on lanes: built from a schedule's order, timed as the longest path through them."""
