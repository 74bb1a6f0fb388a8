"""Everything that touches what Lance does not promise; each use has a test under tests/substrate."""
