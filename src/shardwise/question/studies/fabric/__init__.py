"""Studies of one step on a network: loads, what-ifs, the cheapest fabric that is good enough."""
