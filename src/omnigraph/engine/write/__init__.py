"""One attempt to change the graph: the mutation program, read-your-writes, and the way to its commit."""
