"""Bulk data in and out of a graph through Spark. Start at `run_job`."""

from __future__ import annotations
