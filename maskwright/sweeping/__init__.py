"""Searching settings: many runs of a command, the best of them found."""
