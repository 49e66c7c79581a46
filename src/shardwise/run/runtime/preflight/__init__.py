"""What `shardwise preflight --measure` does with torch: products, collectives, pairs of nodes, clocks"""
