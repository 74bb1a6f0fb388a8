"""The verbs, one a module."""
