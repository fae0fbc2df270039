"""Runs: their configuration and directory, and where their data and models are stored."""
