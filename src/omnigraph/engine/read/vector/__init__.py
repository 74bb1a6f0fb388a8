"""Vectors: which are nearest, exactly."""
