"""The names of published architectures, a table for each, and our own."""
