"""Expected against measured: is this network as fast as it should be, and what is slow?"""
