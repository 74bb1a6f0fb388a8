"""Who is joined to whom: adjacency, and what is asked of it."""
