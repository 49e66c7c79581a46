"""Ready for the job? What a node's own tools say, judged item by item, and nodes compared"""
