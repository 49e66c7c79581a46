"""What shardwise found, in the files of other tools: one file each."""
