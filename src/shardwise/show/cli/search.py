"""`shardwise search MODEL`: the best point of any problem. Stages and cuts have questions of their own."""

from shardwise.show.cli._second_words import app_of
from shardwise.show.cli.search_methods import solve

search = app_of("search")
search.default(solve)
