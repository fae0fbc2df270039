"""Searching settings: many runs of a command, ranked by a metric."""
