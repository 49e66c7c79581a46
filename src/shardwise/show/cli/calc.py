"""`shardwise calc`: sums that need no search, each a second word."""

from shardwise.show.cli._second_words import app_of

calc = app_of("calc")
