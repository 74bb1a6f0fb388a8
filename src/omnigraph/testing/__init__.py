"""Helpers for testing programs built on Omnigraph, and Omnigraph itself: faults, crashes and thresholds."""
