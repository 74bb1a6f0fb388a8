"""The operators of a plan, one a module: scan, expand, count paths, filter, join, order, aggregate, rank, project."""
