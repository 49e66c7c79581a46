"""Results written as files of other tools: one file each."""
