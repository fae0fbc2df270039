"""A table of names for each published architecture, and maskwright's own."""
