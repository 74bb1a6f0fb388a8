"""Tables as columns in memory, found by position."""
