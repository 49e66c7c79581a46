"""What the user states: Model, Cluster, Job, Policy. Frozen, validated at construction, no derived numbers."""
