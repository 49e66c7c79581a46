"""The user's input, typed: Model, Cluster, Job, Policy. Frozen, validated at construction, no derived numbers."""
