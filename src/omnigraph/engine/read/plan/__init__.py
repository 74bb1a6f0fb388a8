"""A plan made ready for one state of the graph: order, cost and the cache of plans."""
