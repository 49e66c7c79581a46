"""`shardwise lab` on the command line: its sub-commands, their options, what they print."""
