"""The accepted schema of a graph, the three files that hold it, and those it has had. Start at `load_contract`."""
