"""Published architectures: one small table of names for each, and our own beside them."""
