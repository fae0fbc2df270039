"""Searching settings: many runs of a command, ranked by a metric.

The command and ranges of its settings come in; runs, a table and a chart go out.
"""
