"""Runs: their configuration and directory, and where their data and models are stored.

What a command is given becomes a `config` and a `run_directory`; the name of a model becomes a
model folder (`find_model`). Nothing here trains.
"""
