"""The model itself, built from the planner's Model on local tensors."""
