"""Is everything ready before a job is scaled up: what a node's own tools say, judged item by item, and nodes compared"""
